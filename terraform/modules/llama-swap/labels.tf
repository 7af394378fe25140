locals {
  name = "llama-swap"

  labels = {
    "app.kubernetes.io/name"       = local.name
    "app.kubernetes.io/component"  = "server"
    "app.kubernetes.io/part-of"    = "corral"
    "app.kubernetes.io/managed-by" = "terraform"
  }
}

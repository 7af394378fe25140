locals {
  labels = {
    "app.kubernetes.io/name"       = "model-store"
    "app.kubernetes.io/component"  = "store"
    "app.kubernetes.io/part-of"    = "corral"
    "app.kubernetes.io/managed-by" = "terraform"
  }
}

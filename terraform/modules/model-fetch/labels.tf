locals {
  name = "download-models"

  labels = {
    "app.kubernetes.io/name"       = local.name
    "app.kubernetes.io/component"  = "download"
    "app.kubernetes.io/part-of"    = "corral"
    "app.kubernetes.io/managed-by" = "terraform"
  }
}

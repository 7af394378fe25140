locals {
  name = "store-exporter"
  port = 9461

  labels = {
    "app.kubernetes.io/name"       = local.name
    "app.kubernetes.io/component"  = "exporter"
    "app.kubernetes.io/part-of"    = "corral"
    "app.kubernetes.io/managed-by" = "terraform"
  }
}

locals {
  name = "card-exporter"
  port = 9460

  labels = {
    "app.kubernetes.io/name"       = local.name
    "app.kubernetes.io/component"  = "exporter"
    "app.kubernetes.io/part-of"    = "corral"
    "app.kubernetes.io/managed-by" = "terraform"
  }
}

locals {
  name = "download-models"

  # A key of this module comes last, and stays.
  labels = merge(var.conventions.labels, {
    "app.kubernetes.io/name"       = local.name
    "app.kubernetes.io/component"  = "download"
    "app.kubernetes.io/part-of"    = "corral"
    "app.kubernetes.io/managed-by" = "terraform"
  })

  annotations = length(var.conventions.annotations) == 0 ? null : var.conventions.annotations
}

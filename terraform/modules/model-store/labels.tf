locals {
  # A key of this module comes last, and stays.
  labels = merge(var.conventions.labels, {
    "app.kubernetes.io/name"       = "model-store"
    "app.kubernetes.io/component"  = "store"
    "app.kubernetes.io/part-of"    = "corral"
    "app.kubernetes.io/managed-by" = "terraform"
  })

  annotations = length(var.conventions.annotations) == 0 ? null : var.conventions.annotations
}

locals {
  name = "card-exporter"
  port = 9460

  # A key of this module comes last, and stays.
  labels = merge(var.conventions.labels, {
    "app.kubernetes.io/name"       = local.name
    "app.kubernetes.io/instance"   = var.engines.namespace # by which corral finds the exporter of a llama-swap
    "app.kubernetes.io/component"  = "exporter"
    "app.kubernetes.io/part-of"    = "corral"
    "app.kubernetes.io/managed-by" = "terraform"
  })

  annotations = length(var.conventions.annotations) == 0 ? null : var.conventions.annotations
}

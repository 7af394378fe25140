locals {
  name   = "gateway"
  port   = 4000
  secret = "corral-gateway" # tools/corral/cluster/gateway.py writes it

  # A key of this module comes last, and stays.
  labels = merge(var.conventions.labels, {
    "app.kubernetes.io/name"       = local.name
    "app.kubernetes.io/component"  = "gateway"
    "app.kubernetes.io/part-of"    = "corral"
    "app.kubernetes.io/managed-by" = "terraform"
  })

  annotations = length(var.conventions.annotations) == 0 ? null : var.conventions.annotations
}

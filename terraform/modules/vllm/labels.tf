locals {
  app    = "vllm"
  store  = "/models"
  keys   = "/run/corral"
  secret = "corral-keys" # tools/corral/cluster/keys.py writes it
  user   = 10001         # of the store's files; the image's own is root

  selector = { "app.kubernetes.io/name" = local.app, "app.kubernetes.io/instance" = var.name }

  # A key of this module comes last, and stays.
  labels = merge(var.conventions.labels, local.selector, {
    "app.kubernetes.io/component"  = "server"
    "app.kubernetes.io/part-of"    = "corral"
    "app.kubernetes.io/managed-by" = "terraform"
    "corral/model"                 = var.model # by it the exporter of the card and corral status know whose the pod is
  })

  annotations = length(var.conventions.annotations) == 0 ? null : var.conventions.annotations
}

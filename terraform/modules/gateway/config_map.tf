module "config" {
  source = "../config-map"

  name        = "gateway-config"
  namespace   = var.namespace
  labels      = local.labels
  annotations = local.annotations
  data        = { "config.yaml" = var.config }
}

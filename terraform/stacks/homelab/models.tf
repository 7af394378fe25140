module "model_store" {
  source = "../../modules/model-store"

  namespace   = local.namespace
  conventions = local.conventions
  store       = var.store
}

module "model_fetch" {
  source = "../../modules/model-fetch"

  namespace       = local.namespace
  claim           = module.model_store.claim
  conventions     = local.conventions
  hf_token_secret = var.hf_token_secret
  hub             = var.hub
  hub_cidrs       = var.hub_cidrs
  image           = local.images["fetch"]
  models          = module.catalog.lock.models
  node            = local.node
  timeout_minutes = var.timeouts.download_minutes

  depends_on = [kubernetes_network_policy_v1.default_deny]
}

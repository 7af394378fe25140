# Its keys are in a Secret that `corral apply` writes, as those of the door: none is in Terraform's state.
module "gateway_config" {
  source = "../../modules/gateway-config"
  count  = var.gateway == null ? 0 : 1

  models         = module.catalog.lock.models
  api_base       = "${module.llama_swap["first"].endpoint}/v1"
  api_key_env    = "CORRAL_DOOR_KEY"
  database_env   = var.gateway.database == null ? null : "DATABASE_URL"
  load_seconds   = var.timeouts.load_seconds
  answer_seconds = var.gateway.answer_seconds
}

module "gateway" {
  source = "../../modules/gateway"
  count  = var.gateway == null ? 0 : 1

  namespace          = local.namespace
  after              = join(" ", values(module.llama_swap)[*].deployment)
  allowed_namespaces = var.gateway.allowed_namespaces
  config             = module.gateway_config[0].yaml
  conventions        = local.conventions
  database           = var.gateway.database
  door_port          = module.llama_swap["first"].ports.door
  drain_seconds      = var.timeouts.drain_seconds
  image              = local.images.gateway
  rollout_minutes    = var.timeouts.rollout_minutes
}

module "gateway_config" {
  source = "../../modules/gateway-config"

  models         = module.catalog.lock.models
  api_base       = var.api_base
  api_key_env    = var.api_key_env
  load_seconds   = var.load_seconds
  answer_seconds = var.answer_seconds
}

module "llama_swap_config" {
  source = "../../modules/llama-swap-config"

  models     = local.models
  lock       = local.lock
  store      = var.store
  engine     = var.engine
  start_port = var.start_port
}

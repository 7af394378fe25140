module "llama_swap_config" {
  source = "../../modules/llama-swap-config"

  models     = module.catalog.lock.models
  store      = var.store
  engine     = var.engine
  preflight  = var.preflight == null ? null : abspath(var.preflight)
  seats      = module.seating.seats
  together   = local.together
  on_cpu     = var.on_cpu
  vllm       = var.vllm
  start_port = var.start_port

  api_key_env = var.door == null ? null : "CORRAL_SWAP_KEY"
}

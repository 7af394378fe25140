module "llama_swap_config" {
  source = "../../modules/llama-swap-config"

  models    = module.catalog.models
  store     = module.llama_swap.store
  engine    = "llama-server"
  preflight = "${module.llama_swap.folder}/preflight.sh"
  seats     = module.seating.seats
}

module "llama_swap" {
  source = "../../modules/llama-swap"

  namespace          = local.namespace
  allowed_namespaces = var.allowed_namespaces
  claim              = module.model_store.claim
  config             = module.llama_swap_config.yaml
  holders            = file("${path.module}/../../modules/llama-swap-config/holders.sh")
  image              = local.images["llama-swap"]
  image_from         = local.image_from
  models             = module.catalog.models
  node               = local.node
  preflight          = file("${path.module}/../../modules/llama-swap-config/preflight.sh")
  runtime_class      = var.runtime_class

  # The server changes only after the files are complete: a failed download leaves it unchanged.
  depends_on = [module.model_fetch]
}

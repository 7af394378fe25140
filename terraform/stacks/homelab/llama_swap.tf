locals {
  _api_key_env = "CORRAL_SWAP_KEY"

  # Without a lock there is no card.  A model on vLLM is alone in the group of its name, and llama-swap does not run it.
  _together_of = { for key, name in local.cards : key => {
    for group, sets in try(module.seating.together[name], {}) : group => sets if !contains(keys(local.on_vllm), group)
  } }
}

module "llama_swap_config" {
  source   = "../../modules/llama-swap-config"
  for_each = local.cards

  models      = local.models_of[each.key]
  store       = module.llama_swap["first"].store
  engine      = "llama-server"
  preflight   = "${module.llama_swap["first"].folder}/preflight.sh"
  seats       = module.seating.seats
  together    = local._together_of[each.key]
  api_key_env = local._api_key_env
  concurrency = var.concurrency
  peers = { for id in local.vllm_of[each.key] : "vllm-${id}" => {
    proxy  = local.vllm_addresses[id]
    models = concat([id], local.on_vllm[id].intent.aliases)
  } }

  health_check_timeout = var.timeouts.load_seconds
}

module "llama_swap" {
  source   = "../../modules/llama-swap"
  for_each = local.cards

  name               = each.key == "first" ? "llama-swap" : local._service_of[each.key]
  card               = local._several ? each.value : null
  namespace          = local.namespace
  after              = module.model_fetch.job # a failed download leaves the server unchanged
  allowed_namespaces = var.allowed_namespaces
  api_key_env        = local._api_key_env
  caddy              = module.door[each.key].caddy
  claim              = module.model_store.claim
  config             = module.llama_swap_config[each.key].yaml
  conventions        = local.conventions
  door_image         = local.images.door
  engine_image       = local.images["llama-server"]
  expose             = each.key == "first" ? var.expose : null
  exporter_namespace = try(var.card_exporter.namespace, null)
  gateway            = var.gateway != null
  guard              = module.door[each.key].guard
  guard_image        = local.images.fetch
  has_adapters       = local.has_adapters
  holders            = file("${path.module}/../../modules/llama-swap-config/holders.sh")
  image              = local.images["llama-swap"]
  image_hosts        = var.image_hosts
  image_from         = local.image_from
  models             = local.models_of[each.key]
  node               = local.nodes[each.value]
  preflight          = file("${path.module}/../../modules/llama-swap-config/preflight.sh")
  runtime_class      = var.runtime_class
  together           = local._together_of[each.key]
  concurrency        = var.concurrency
  cpu                = var.cpu
  drain_seconds      = var.timeouts.drain_seconds
  priority_class     = var.priority_class
  rollout_minutes    = var.timeouts.rollout_minutes
}

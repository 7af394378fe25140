locals {
  has_adapters = anytrue([for model in values(module.catalog.lock.models) : anytrue([for one in try(model.intent.adapters, []) : try(one.name, null) != null])])
}

# Every request passes the door.  The keys are in a Secret that `corral apply` and `corral keys` write, so that none is in Terraform's state.
module "door" {
  source   = "../../modules/door"
  for_each = local.cards

  listen       = ":${module.llama_swap["first"].ports.door}"
  hosts        = concat(module.llama_swap["first"].hosts, local._several ? ["${local._service_of[each.key]}.${var.namespace}.svc"] : [])
  guard        = { host = "127.0.0.1", port = module.llama_swap["first"].ports.guard }
  upstream     = { port = module.llama_swap["first"].ports.llama_swap }
  internal_key = { file = module.llama_swap["first"].keys.internal }
  keys         = module.llama_swap["first"].keys.clients
  clients      = module.catalog.lock.clients
  has_gateway  = var.gateway != null
  has_monitor  = var.card_exporter != null
  may_yield    = var.card_exporter != null && contains(local._yields, each.value)
  models       = module.catalog.lock.models
  groups       = { for id, model in module.catalog.lock.models : id => model.intent.group }
  peers        = local.peers_of[each.key]
  image_hosts  = keys(var.image_hosts)

  chosen_versions = local.has_adapters ? module.llama_swap["first"].chosen_versions : null

  public_scheme = module.llama_swap["first"].public_scheme

  # The guard ends after llama-swap: no answer is under way then.
  drain_seconds = 5
}

# Every request passes the door.  The keys are in a Secret that `corral apply` and `corral keys` write, so that none is in Terraform's state.
module "door" {
  source = "../../modules/door"

  listen       = ":${module.llama_swap.ports.door}"
  hosts        = module.llama_swap.hosts
  guard        = { host = "127.0.0.1", port = module.llama_swap.ports.guard }
  upstream     = { port = module.llama_swap.ports.llama_swap }
  internal_key = { file = module.llama_swap.keys.internal }
  keys         = module.llama_swap.keys.clients
  clients      = module.catalog.lock.clients
  has_monitor  = var.card_exporter != null
  may_yield    = var.card_exporter != null && local._yields
  models       = module.catalog.lock.models
  image_hosts  = keys(var.image_hosts)

  public_scheme = module.llama_swap.public_scheme

  # The guard ends after llama-swap: no answer is under way then.
  drain_seconds = 5
}

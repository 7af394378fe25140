module "door" {
  source = "../../modules/door"
  count  = var.door == null ? 0 : 1

  listen          = "127.0.0.1:${var.door.port}"
  hosts           = var.door.hosts
  tls             = var.door.tls
  guard           = { unix = "${var.door.folder}/guard.sock" }
  internal_key    = { file = "${var.door.folder}/llama-swap.key" }
  upstream        = { port = var.door.swap_port }
  keys            = var.door.keys
  clients         = module.catalog.lock.clients
  models          = module.catalog.lock.models
  groups          = { for id, model in module.catalog.lock.models : id => model.intent.group }
  chosen_versions = var.door.versions

  # A guard that another one replaces lets its answers end.  When the stack ends, llama-swap cuts them after 30 s.
  drain_seconds = 3600
}

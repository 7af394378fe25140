# The guard decides who sends a request and what it may ask for; tools/corral/door describes its configuration.

locals {
  _operator = { models = null, requests = null, role = "operator" }
  _gateway  = { gateway = { models = null, requests = null, role = "client" } }
  _monitor  = { monitor = { models = [], requests = 4, role = var.may_yield ? "steward" : "monitor" } }

  guard = merge({
    version  = 1
    listen   = { for key, value in var.guard : key => value if value != null }
    upstream = var.upstream
    keys     = var.keys
    clients = merge({ operator = local._operator }, { for name, client in local._monitor : name => client if var.has_monitor }, {
      for name, client in local._gateway : name => client if var.has_gateway
      }, {
      for name, client in var.clients : name => { models = client.models, requests = client.requests, role = "client" }
    })
    models              = merge([for id, model in var.models : { for name in concat([id], model.intent.aliases) : name => id }]...)
    adapters            = local.adapters
    chosen_versions     = var.chosen_versions
    groups              = var.groups
    tasks               = { for id, model in var.models : id => model.intent.task if model.intent.task != "chat" }
    peers               = var.peers
    image_hosts         = var.image_hosts
    body_mib            = var.body_mib
    retry_after_seconds = var.retry_after_seconds
    drain_seconds       = var.drain_seconds
  }, { for source, value in var.internal_key : "internal_key_${source}" => value if value != null })

  # Each name that requests may have beside those of models, with its versions in the order of the model's file.
  adapters = merge([for id, model in var.models : { for name, versions in {
    for one in model.intent.adapters : one.name => one.version... if one.name != null
  } : "${id}:${name}" => { model = id, versions = versions } }]...)

  _named = concat(keys(var.clients), [for name in keys(local._monitor) : name if var.has_monitor])

  _unknown_models = flatten([
    for name, client in var.clients : [for id in coalesce(client.models, []) : "${name} names ${id}" if !contains(keys(var.models), id)]
  ])

  clients_have_keys         = var.keys != null || (length(var.clients) == 0 && !var.has_monitor && !var.has_gateway)
  clients_name_known_models = length(local._unknown_models) == 0
}

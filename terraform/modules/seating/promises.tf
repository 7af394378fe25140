# The same for an exporter, in bytes: `cards` of its configuration, which tools/corral/exporter/__init__.py describes.

locals {
  promises = { for name, card in var.cards : name => {
    vram_bytes    = card.vram_mib * local._mib
    reserve_bytes = card.reserve_mib * local._mib
    yield         = one([for one in card.yield[*] : { floor_bytes = one.floor_mib * local._mib, idle_seconds = one.idle_seconds }])
    tenants = { for tenant, one in card.tenants : tenant => {
      budget_bytes = one.budget_mib * local._mib
      namespace    = one.namespace
      selector     = one.selector
      unit         = one.unit
      expects      = try(one.expects.env, {})
    } }
    models = { for id, model in var.models : id => {
      group           = model.intent.group
      seat_bytes      = local._seats[id] * local._mib
      predicted_bytes = model.predicted.gpu_bytes
      measured_bytes  = try(model.measured.gpu_bytes, null)
      latency         = model.intent.latency
    } if model.intent.card == name }
  } }
}

# The program, the one library that it needs, and what is promised: no image of our own.

locals {
  _program = coalesce(var.program, "${path.module}/../../../tools/corral/exporter")
  _wheel   = "prometheus_client-0.26.0-py3-none-any.whl"
  _mib     = 1048576

  config = {
    version              = 1
    listen               = { host = "0.0.0.0", port = local.port }
    operator_keys        = "${local._keys}/keys.json" # both files: tools/corral/cluster/exporters.py
    engines              = var.engines
    door                 = merge(var.door, { key_file = "${local._keys}/key" })
    records              = local._records
    alertmanager         = one([for one in var.alertmanager[*] : "http://${one.service}.${one.namespace}.svc:${one.port}"])
    driver_pid_namespace = var.driver_pid_namespace
    seal                 = var.seal
    cards = { for name, card in var.cards : name => {
      vram_bytes    = card.vram_mib * local._mib
      reserve_bytes = card.reserve_mib * local._mib
      yield         = one([for one in card.yield[*] : { floor_bytes = one.floor_mib * local._mib, idle_seconds = one.idle_seconds }])
      tenants = { for tenant, one in card.tenants : tenant => {
        budget_bytes = one.budget_mib * local._mib
        namespace    = one.namespace
        selector     = one.selector
        expects      = try(one.expects.env, {})
      } }
      models = { for id, model in var.models : id => {
        group           = model.intent.group
        seat_bytes      = var.seats[id] * local._mib
        predicted_bytes = model.predicted.gpu_bytes
        measured_bytes  = try(model.measured.gpu_bytes, null)
        latency         = model.intent.latency
      } if model.intent.card == name }
    } if card.node != null }
  }
}

resource "kubernetes_config_map_v1" "program" {
  metadata {
    name      = "${local.name}-program"
    namespace = kubernetes_namespace_v1.card_exporter.metadata[0].name
    labels    = local.labels
  }

  data        = { for path in fileset(local._program, "{[^.]*.py,page.html}") : path => file("${local._program}/${path}") }
  binary_data = { (local._wheel) = filebase64("${path.module}/${local._wheel}") }
}

resource "kubernetes_config_map_v1" "config" {
  metadata {
    name      = "${local.name}-config"
    namespace = kubernetes_namespace_v1.card_exporter.metadata[0].name
    labels    = local.labels
  }

  data = { "config.json" = jsonencode(local.config) }
}

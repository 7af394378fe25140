# The program, the one library that it needs, and what is promised: no image of our own.

locals {
  _program = coalesce(var.program, "${path.module}/../../../tools/corral/exporter")
  _wheel   = "prometheus_client-0.26.0-py3-none-any.whl"

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
  }

  # Of each node its own cards: one that sits elsewhere is none that its driver lists.
  configs = { for node in local._nodes : "${node}.json" => jsonencode(merge(local.config, {
    cards = { for name, of in var.nodes : name => var.promises[name] if of == node }
  })) }
}

module "program" {
  source = "../config-map"

  name        = "${local.name}-program"
  namespace   = kubernetes_namespace_v1.card_exporter.metadata[0].name
  labels      = local.labels
  annotations = local.annotations
  data        = { for path in fileset(local._program, "{[^.]*.py,page.html}") : path => file("${local._program}/${path}") }
  binary_data = { (local._wheel) = filebase64("${path.module}/${local._wheel}") }
}

module "config" {
  source = "../config-map"

  name        = "${local.name}-config"
  namespace   = kubernetes_namespace_v1.card_exporter.metadata[0].name
  labels      = local.labels
  annotations = local.annotations
  data        = local.configs
}

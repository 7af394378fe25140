module "agent" {
  source = "../config-map"

  name        = "${local.name}-agent"
  namespace   = var.namespace
  labels      = local.labels
  annotations = local.annotations
  data        = { for path in fileset(local.agent, "[^.]*.py") : path => file("${local.agent}/${path}") }
}

module "lock" {
  source = "../config-map"

  name        = "${local.name}-lock"
  namespace   = var.namespace
  labels      = local.labels
  annotations = local.annotations
  data        = { "lock.json" = jsonencode(local.lock), store = var.claim } # the files and their destinations
}

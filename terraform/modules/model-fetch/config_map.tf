resource "kubernetes_config_map_v1" "agent" {
  metadata {
    name      = "${local.name}-agent"
    namespace = var.namespace
    labels    = local.labels
  }

  data = { for path in fileset(local.agent, "[^.]*.py") : path => file("${local.agent}/${path}") }
}

resource "kubernetes_config_map_v1" "lock" {
  metadata {
    name      = "${local.name}-lock"
    namespace = var.namespace
    labels    = local.labels
  }

  # The files and their destinations.
  data = {
    "lock.json" = jsonencode(local.lock)
    "store"     = var.claim
  }
}

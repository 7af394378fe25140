# The Service that clients use leads to the pods of all cards: the guard of each passes on what is for another one.

locals {
  _is_first = local.name == local.app
  _has_own  = local._is_first && var.card != null
  _own      = local._has_own ? "${local.name}-first" : local.name # leads to this pod alone
  _domains  = ["", ".${var.namespace}", ".${var.namespace}.svc", ".${var.namespace}.svc.cluster.local"]
}

resource "kubernetes_service_v1" "llama_swap" {
  metadata {
    name        = local.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    type     = "ClusterIP"
    selector = local._is_first ? { "app.kubernetes.io/name" = local.app } : local.selector

    port {
      name        = "http"
      port        = local.ports.door
      target_port = tostring(local.ports.door)
      protocol    = "TCP"
    }
  }
}

resource "kubernetes_service_v1" "own" {
  count = local._has_own ? 1 : 0

  metadata {
    name        = local._own
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    type     = "ClusterIP"
    selector = local.selector

    port {
      name        = "http"
      port        = local.ports.door
      target_port = tostring(local.ports.door)
      protocol    = "TCP"
    }
  }
}

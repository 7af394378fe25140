resource "kubernetes_service_v1" "llama_swap" {
  metadata {
    name        = local.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    type     = "ClusterIP"
    selector = { "app.kubernetes.io/name" = local.name }

    port {
      name        = "http"
      port        = local.ports.door
      target_port = tostring(local.ports.door)
      protocol    = "TCP"
    }
  }
}

resource "kubernetes_service_v1" "gateway" {
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
      port        = local.port
      target_port = "http"
      protocol    = "TCP"
    }
  }
}

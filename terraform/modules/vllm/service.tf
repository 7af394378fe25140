resource "kubernetes_service_v1" "vllm" {
  metadata {
    name        = var.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    type     = "ClusterIP"
    selector = local.selector

    port {
      name        = "http"
      port        = var.port
      target_port = tostring(var.port)
      protocol    = "TCP"
    }
  }
}

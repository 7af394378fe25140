resource "kubernetes_service_v1" "vllm" {
  metadata {
    name        = local.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    type     = "ClusterIP"
    selector = local.selector

    port {
      name        = "http"
      port        = local.port
      target_port = tostring(local.port)
      protocol    = "TCP"
    }
  }
}

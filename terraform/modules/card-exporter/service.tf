# For a scraper that finds its targets by Services, and for `corral card --context`.
resource "kubernetes_service_v1" "card_exporter" {
  metadata {
    name        = local.name
    namespace   = kubernetes_namespace_v1.card_exporter.metadata[0].name
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    cluster_ip = "None" # each node's pod is a target of its own
    selector   = { "app.kubernetes.io/name" = local.name }

    port {
      name        = "metrics"
      port        = local.port
      target_port = "metrics"
      protocol    = "TCP"
    }
  }
}

# For a scraper that finds its targets by Services.
resource "kubernetes_service_v1" "store_exporter" {
  metadata {
    name        = local.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    cluster_ip = "None"
    selector   = { "app.kubernetes.io/name" = local.name }

    port {
      name        = "metrics"
      port        = local.port
      target_port = "metrics"
      protocol    = "TCP"
    }
  }
}

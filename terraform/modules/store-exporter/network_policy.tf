# In: the metrics, from the named namespaces.  Out: nothing.
resource "kubernetes_network_policy_v1" "store_exporter" {
  metadata {
    name        = local.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    policy_types = ["Ingress", "Egress"]

    pod_selector {
      match_labels = { "app.kubernetes.io/name" = local.name }
    }

    dynamic "ingress" {
      for_each = length(var.scraped_from) > 0 ? [sort(var.scraped_from)] : [] # a rule without `from` would admit every client

      content {
        ports {
          port     = tostring(local.port)
          protocol = "TCP"
        }

        dynamic "from" {
          for_each = ingress.value

          content {
            namespace_selector {
              match_labels = { "kubernetes.io/metadata.name" = from.value }
            }
          }
        }
      }
    }
  }
}

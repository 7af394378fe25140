# In: the metrics, from the named namespaces.  Out: the front door of llama-swap, an Alertmanager where one is named, and the API server,
# whose address is the cluster's own affair.
resource "kubernetes_network_policy_v1" "card_exporter" {
  metadata {
    name        = local.name
    namespace   = kubernetes_namespace_v1.card_exporter.metadata[0].name
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    policy_types = ["Ingress", "Egress"]
    pod_selector {}

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

    egress {
      ports {
        port     = tostring(var.door.port)
        protocol = "TCP"
      }

      to {
        namespace_selector {
          match_labels = { "kubernetes.io/metadata.name" = var.engines.namespace }
        }

        pod_selector {
          match_labels = { for label in split(",", var.engines.selector) : split("=", label)[0] => split("=", label)[1] }
        }
      }
    }

    dynamic "egress" {
      for_each = var.alertmanager[*]

      content {
        ports {
          port     = tostring(egress.value.port)
          protocol = "TCP"
        }

        to {
          namespace_selector {
            match_labels = { "kubernetes.io/metadata.name" = egress.value.namespace }
          }
        }
      }
    }

    dynamic "egress" {
      for_each = length(var.alertmanager[*]) > 0 ? [["UDP", "TCP"]] : [] # its Service has a name

      content {
        dynamic "ports" {
          for_each = egress.value

          content {
            port     = "53"
            protocol = ports.value
          }
        }
      }
    }

    egress {
      dynamic "ports" {
        for_each = ["443", "6443"]

        content {
          port     = ports.value
          protocol = "TCP"
        }
      }
    }
  }
}

# To any address, because a hub redirects to addresses of a content network: only the ports are known beforehand.

locals {
  _hub_ports = var.hub == null ? [443] : [try(
    tonumber(regex("^https?://[^/]*:([0-9]+)(?:/|$)", var.hub)[0]),
    startswith(var.hub, "http://") ? 80 : 443,
  )]
}

resource "kubernetes_network_policy_v1" "download_models" {
  metadata {
    name      = local.name
    namespace = var.namespace
    labels    = local.labels
  }

  spec {
    policy_types = ["Ingress", "Egress"]

    pod_selector {
      match_labels = { "app.kubernetes.io/name" = local.name }
    }

    egress {
      ports {
        port     = "53"
        protocol = "UDP"
      }
      ports {
        port     = "53"
        protocol = "TCP"
      }
    }

    egress {
      dynamic "ports" {
        for_each = distinct(concat([443], local._hub_ports))

        content {
          port     = tostring(ports.value)
          protocol = "TCP"
        }
      }
    }
  }
}

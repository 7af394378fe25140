# In: the door's port, from the named namespaces, from the exporter of the card, and from a gateway.  Out: nothing, not even DNS, except to the image
# hosts where there are any.  The engine fetches an image whose address a request names; the guard compares the host's name, and this the
# address behind it.  Of several cards the pods reach each other's door, and the resolver that knows its name.

locals {
  _namespaces = sort(distinct(concat(var.allowed_namespaces, var.expose[*].from_namespace)))

  _image_hosts = { for host, cidrs in var.image_hosts : host => {
    cidrs = cidrs
    ports = try([tonumber(split(":", host)[1])], [80, 443])
  } }
}

resource "kubernetes_network_policy_v1" "llama_swap" {
  metadata {
    name        = local.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    policy_types = ["Ingress", "Egress"]

    pod_selector {
      match_labels = local.selector
    }

    dynamic "ingress" {
      for_each = length(local._namespaces) > 0 ? [local._namespaces] : [] # a rule without `from` would admit every client

      content {
        ports {
          port     = tostring(local.ports.door)
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

    dynamic "ingress" {
      for_each = var.exporter_namespace[*]

      content {
        ports {
          port     = tostring(local.ports.door)
          protocol = "TCP"
        }

        from {
          namespace_selector {
            match_labels = { "kubernetes.io/metadata.name" = ingress.value }
          }

          pod_selector {
            match_labels = { "app.kubernetes.io/name" = "card-exporter" }
          }
        }
      }
    }

    dynamic "ingress" {
      for_each = var.gateway ? ["gateway"] : []

      content {
        ports {
          port     = tostring(local.ports.door)
          protocol = "TCP"
        }

        from {
          pod_selector {
            match_labels = { "app.kubernetes.io/name" = ingress.value }
          }
        }
      }
    }

    dynamic "ingress" {
      for_each = var.card[*]

      content {
        ports {
          port     = tostring(local.ports.door)
          protocol = "TCP"
        }

        from {
          pod_selector {
            match_labels = { "app.kubernetes.io/name" = local.app }
          }
        }
      }
    }

    dynamic "egress" {
      for_each = var.card[*]

      content {
        ports {
          port     = tostring(local.ports.door)
          protocol = "TCP"
        }

        to {
          pod_selector {
            match_labels = { "app.kubernetes.io/name" = local.app }
          }
        }
      }
    }

    dynamic "egress" {
      for_each = length(local._image_hosts) > 0 || var.card != null ? [["UDP", "TCP"]] : []

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

    dynamic "egress" {
      for_each = local._image_hosts

      content {
        dynamic "ports" {
          for_each = egress.value.ports

          content {
            port     = tostring(ports.value)
            protocol = "TCP"
          }
        }

        dynamic "to" {
          for_each = egress.value.cidrs

          content {
            ip_block {
              cidr = to.value
            }
          }
        }
      }
    }
  }
}

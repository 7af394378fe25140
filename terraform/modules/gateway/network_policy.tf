# In: LiteLLM's port, from the named namespaces.  Out: the door, the resolver that knows its name, and the database where there is one.
resource "kubernetes_network_policy_v1" "gateway" {
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
      for_each = length(var.allowed_namespaces) > 0 ? [sort(distinct(var.allowed_namespaces))] : [] # a rule without `from` would admit every client

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
        port     = tostring(var.door_port)
        protocol = "TCP"
      }

      to {
        pod_selector {
          match_labels = { "app.kubernetes.io/name" = "llama-swap" }
        }
      }
    }

    egress {
      dynamic "ports" {
        for_each = ["UDP", "TCP"]

        content {
          port     = "53"
          protocol = ports.value
        }
      }
    }

    dynamic "egress" {
      for_each = var.database[*]

      content {
        ports {
          port     = tostring(egress.value.port)
          protocol = "TCP"
        }

        dynamic "to" {
          for_each = sort(egress.value.cidrs)

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

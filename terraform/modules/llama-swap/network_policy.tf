# In: port 8080, from the named namespaces.  Out: nothing, not even DNS.  The server fetches an image whose address a request names, and
# would do so for every permitted client.
resource "kubernetes_network_policy_v1" "llama_swap" {
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

    dynamic "ingress" {
      for_each = length(var.allowed_namespaces) > 0 ? [sort(distinct(var.allowed_namespaces))] : [] # a rule without `from` would admit every client

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
  }
}

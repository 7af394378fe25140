# In: port 8080, from the namespaces named.  Out: nothing, DNS included.  A server that is given an image's address fetches it, and would
# do so for anybody who may ask it something.
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
      for_each = length(var.allowed_namespaces) > 0 ? [sort(distinct(var.allowed_namespaces))] : [] # no `from` at all would be everybody

      content {
        ports {
          port     = "8080"
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

# In: from llama-swap alone, behind the front door.  Out: nothing, not even DNS; a request may name the address of an image.
resource "kubernetes_network_policy_v1" "vllm" {
  metadata {
    name        = var.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    policy_types = ["Ingress", "Egress"]

    pod_selector {
      match_labels = local.selector
    }

    ingress {
      ports {
        port     = tostring(var.port)
        protocol = "TCP"
      }

      from {
        pod_selector {
          match_labels = var.from
        }
      }
    }
  }
}

# llama-swap's own policy permits no way out; policies add up.
resource "kubernetes_network_policy_v1" "to_vllm" {
  metadata {
    name        = "${var.name}-from-llama-swap"
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    policy_types = ["Egress"]

    pod_selector {
      match_labels = var.from
    }

    egress {
      ports {
        port     = tostring(var.port)
        protocol = "TCP"
      }

      to {
        pod_selector {
          match_labels = local.selector
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
  }
}

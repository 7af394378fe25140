# There is one pod of the card, and a drain of its node must go through: an eviction waits for the answers in flight.
resource "kubernetes_pod_disruption_budget_v1" "llama_swap" {
  metadata {
    name        = local.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    max_unavailable = "1"

    selector {
      match_labels = local.selector
    }
  }
}

# No connection in or out, except those that each module permits for its own pods.  In a namespace that was there before, for the stack's
# own pods alone: the others' connections are their owners' decision.
resource "kubernetes_network_policy_v1" "default_deny" {
  metadata {
    name        = "default-deny"
    namespace   = local.namespace
    labels      = local._labels
    annotations = local._annotations
  }

  spec {
    policy_types = ["Ingress", "Egress"]

    pod_selector {
      match_labels = local._namespace_is_ours ? null : { "app.kubernetes.io/part-of" = "corral" }
    }
  }
}

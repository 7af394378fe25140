# A namespace of its own: the driver reports the pids of the node, and only a pod with hostPID can tell whose they are.  Pod Security
# permits that to privileged namespaces alone.
resource "kubernetes_namespace_v1" "card_exporter" {
  metadata {
    name = var.namespace
    labels = merge(local.labels, {
      "pod-security.kubernetes.io/enforce" = "privileged"
      "pod-security.kubernetes.io/warn"    = "baseline"
      "pod-security.kubernetes.io/audit"   = "baseline"
    })
    annotations = local.annotations
  }

  timeouts {
    delete = "5m"
  }
}

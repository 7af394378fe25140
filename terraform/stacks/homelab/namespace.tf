# Only restricted pods are permitted here.
#
# An existing claim is in an existing namespace, which is only labelled: removing it with the stack would remove the claim, and perhaps
# the models.

locals {
  _namespace_is_ours = var.store.claim == null
  _pod_security = {
    "pod-security.kubernetes.io/enforce" = "restricted"
    "pod-security.kubernetes.io/warn"    = "restricted"
    "pod-security.kubernetes.io/audit"   = "restricted"
  }

  # Known at plan time, and created before its objects.
  namespace = one(concat(kubernetes_namespace_v1.llama_cpp[*].metadata[0].name, kubernetes_labels.llama_cpp[*].metadata[0].name))
}

resource "kubernetes_namespace_v1" "llama_cpp" {
  count = local._namespace_is_ours ? 1 : 0

  metadata {
    name   = var.namespace
    labels = merge(local._pod_security, { "app.kubernetes.io/part-of" = "corral", "app.kubernetes.io/managed-by" = "terraform" })
  }

  timeouts {
    delete = "5m"
  }
}

resource "kubernetes_labels" "llama_cpp" {
  count = local._namespace_is_ours ? 0 : 1

  api_version = "v1"
  kind        = "Namespace"

  metadata {
    name = var.namespace
  }

  labels = local._pod_security
}

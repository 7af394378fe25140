# Only restricted pods are permitted here.
#
# The other pods of a namespace that exists, such as that of an existing claim, are none of the stack's business: it enforces nothing on
# them unless the operator asks for it.  Removing that namespace with the stack would remove the claim, and perhaps the models.

locals {
  _namespace_is_ours = coalesce(var.create_namespace, var.store.claim == null)
  _is_restricted     = coalesce(var.enforce_pod_security, local._namespace_is_ours)
  _pod_security = {
    "pod-security.kubernetes.io/enforce" = "restricted"
    "pod-security.kubernetes.io/warn"    = "restricted"
    "pod-security.kubernetes.io/audit"   = "restricted"
  }

  # Known at plan time, and created before its objects.
  namespace = concat(kubernetes_namespace_v1.llama_cpp[*].metadata[0].name, kubernetes_labels.llama_cpp[*].metadata[0].name, [var.namespace])[0]
}

resource "kubernetes_namespace_v1" "llama_cpp" {
  count = local._namespace_is_ours ? 1 : 0

  metadata {
    name        = var.namespace
    labels      = merge(local._labels, local._is_restricted ? local._pod_security : {})
    annotations = local._annotations
  }

  timeouts {
    delete = "5m"
  }
}

resource "kubernetes_labels" "llama_cpp" {
  count = !local._namespace_is_ours && local._is_restricted ? 1 : 0

  api_version = "v1"
  kind        = "Namespace"

  metadata {
    name = var.namespace
  }

  labels = local._pod_security
}

# It lists pods, of every namespace, because the tenants of a card are in several.  Nothing else.

resource "kubernetes_service_account_v1" "card_exporter" {
  metadata {
    name        = local.name
    namespace   = kubernetes_namespace_v1.card_exporter.metadata[0].name
    labels      = local.labels
    annotations = local.annotations
  }

  automount_service_account_token = false # the pod asks for it

  lifecycle {
    ignore_changes = [image_pull_secret, secret] # a cluster may add its own to every account
  }
}

resource "kubernetes_cluster_role_v1" "card_exporter" {
  metadata {
    name        = "${var.namespace}-${local.name}" # another exporter of the cluster has another namespace
    labels      = local.labels
    annotations = local.annotations
  }

  rule {
    api_groups = [""]
    resources  = ["pods"]
    verbs      = ["get", "list"]
  }
}

resource "kubernetes_cluster_role_binding_v1" "card_exporter" {
  metadata {
    name        = "${var.namespace}-${local.name}"
    labels      = local.labels
    annotations = local.annotations
  }

  role_ref {
    api_group = "rbac.authorization.k8s.io"
    kind      = "ClusterRole"
    name      = kubernetes_cluster_role_v1.card_exporter.metadata[0].name
  }

  subject {
    kind      = "ServiceAccount"
    name      = kubernetes_service_account_v1.card_exporter.metadata[0].name
    namespace = kubernetes_namespace_v1.card_exporter.metadata[0].name
  }
}

resource "kubernetes_service_account_v1" "gateway" {
  metadata {
    name        = local.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  automount_service_account_token = false

  lifecycle {
    ignore_changes = [image_pull_secret, secret] # a cluster may add its own to every account
  }
}

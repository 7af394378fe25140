resource "kubernetes_service_account_v1" "download_models" {
  metadata {
    name      = local.name
    namespace = var.namespace
    labels    = local.labels
  }

  automount_service_account_token = false
}

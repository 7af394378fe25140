resource "kubernetes_persistent_volume_claim_v1" "models" { # never bound? corral status, docs/runbooks/download-job-failed.md
  count = local._is_ours ? 1 : 0

  metadata {
    name        = "${var.name}-${local._mark}"
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    access_modes       = ["ReadWriteMany"]
    storage_class_name = local._class
    volume_name        = kubernetes_persistent_volume_v1.models[0].metadata[0].name

    resources {
      requests = { storage = var.size }
    }
  }

  # A claim that Terraform gave up waiting for would be replaced by one of the same name, which cannot be made beside it.
  # The download Job waits for it, and corral apply has the reason.
  wait_until_bound = false

  lifecycle {
    create_before_destroy = true
    ignore_changes        = [spec[0].resources] # only a driver's volume can grow
  }
}

# A StorageClass makes the volume of this one, when the first pod is placed or at once, and removes it with the claim where its
# reclaimPolicy is Delete: corral plan names that.
resource "kubernetes_persistent_volume_claim_v1" "provisioned" { # never bound? corral status, docs/runbooks/download-job-failed.md
  count = var.store.storage_class == null ? 0 : 1

  metadata {
    name        = "${var.name}-${substr(sha256(jsonencode([var.store.storage_class, local._access_mode])), 0, 8)}"
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    access_modes       = [local._access_mode]
    storage_class_name = var.store.storage_class

    resources {
      requests = { storage = var.store.size }
    }
  }

  wait_until_bound = false # as above; and no volume is made before the Job's pod is placed, where the class waits for it

  lifecycle {
    create_before_destroy = true
  }
}

# A volume cannot be moved.  Its name contains a digest of the place, so that another place is another volume and another claim: Terraform
# creates both before it removes the old ones, which stay until no pod uses them.

locals {
  _is_ours = var.store.nfs != null || var.store.local != null
  _mark    = substr(sha256(jsonencode([try([var.store.nfs.server, var.store.nfs.path], null), var.store.local])), 0, 8)

  # No class of this name has to exist, and it has no driver: a claim without a class would get the cluster's default class, and never
  # this volume.
  _class = "corral"

  # All pods that mount it are on the card's node, and every driver has this mode.
  _access_mode = coalesce(var.store.access_mode, "ReadWriteOnce")
}

resource "kubernetes_persistent_volume_v1" "models" {
  count = local._is_ours ? 1 : 0

  metadata {
    name        = "${var.namespace}-${var.name}-${local._mark}"
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    access_modes                     = ["ReadWriteMany"]
    capacity                         = { storage = var.size }
    mount_options                    = try(var.store.nfs.mount_options, null)
    persistent_volume_reclaim_policy = "Retain"
    storage_class_name               = local._class
    volume_mode                      = "Filesystem"

    claim_ref {
      namespace = var.namespace
      name      = "${var.name}-${local._mark}"
    }

    persistent_volume_source {
      dynamic "nfs" {
        for_each = var.store.nfs[*]

        content {
          server = nfs.value.server
          path   = nfs.value.path
        }
      }

      dynamic "local" {
        for_each = var.store.local[*]

        content {
          path = local.value.path
        }
      }
    }

    dynamic "node_affinity" {
      for_each = var.store.local[*]

      content {
        required {
          node_selector_term {
            match_expressions {
              key      = "kubernetes.io/hostname"
              operator = "In"
              values   = [node_affinity.value.node]
            }
          }
        }
      }
    }
  }

  lifecycle {
    create_before_destroy = true
  }
}

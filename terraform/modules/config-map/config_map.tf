locals {
  _hash = substr(sha256(jsonencode([var.data, var.binary_data])), 0, 10)
}

# One instance for each content: when an apply fails, the previous ConfigMap is still there under its key, and going back to it makes
# nothing.  Without keys it would be a leftover whose name is taken.
resource "kubernetes_config_map_v1" "by_content" {
  for_each = toset([local._hash])

  metadata {
    name        = "${var.name}-${each.key}"
    namespace   = var.namespace
    labels      = var.labels
    annotations = var.annotations
  }

  immutable   = true
  data        = var.data
  binary_data = var.binary_data

  lifecycle {
    create_before_destroy = true # and destroyed after the workload that mounted it has changed
  }
}

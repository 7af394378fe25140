# A name outside of the cluster.  Only the controller's namespace gets in for it; the door serves the name, and compares Origin with it.
resource "kubernetes_ingress_v1" "llama_swap" {
  count = try(var.expose.ingress_class, null) == null ? 0 : 1

  metadata {
    name        = local.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = var.expose.annotations == null ? local.annotations : merge(local.annotations, var.expose.annotations)
  }

  spec {
    ingress_class_name = var.expose.ingress_class

    dynamic "tls" {
      for_each = var.expose.tls_secret[*]

      content {
        hosts       = [var.expose.hostname]
        secret_name = tls.value
      }
    }

    rule {
      host = var.expose.hostname

      http {
        path {
          path      = "/"
          path_type = "Prefix"

          backend {
            service {
              name = kubernetes_service_v1.llama_swap.metadata[0].name

              port {
                number = local.ports.door
              }
            }
          }
        }
      }
    }
  }
}

# An HTTPRoute is an object of an extension: Terraform could plan it only where the cluster answers and has the extension.
locals {
  http_route = try(var.expose.gateway, null) == null ? null : {
    apiVersion = "gateway.networking.k8s.io/v1"
    kind       = "HTTPRoute"
    metadata   = { name = local.name, namespace = var.namespace, labels = local.labels }
    spec = {
      parentRefs = [var.expose.gateway]
      hostnames  = [var.expose.hostname]
      rules      = [{ backendRefs = [{ name = local.name, port = local.ports.door }] }]
    }
  }
}

locals {
  _folder = "/opt/corral"
  _store  = "/models"
}

resource "kubernetes_deployment_v1" "store_exporter" {
  metadata {
    name        = local.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  wait_for_rollout = false # models are served without it

  spec {
    replicas = 1

    strategy {
      type = "Recreate" # of two, one would report the previous lock
    }

    selector {
      match_labels = { "app.kubernetes.io/name" = local.name }
    }

    template {
      metadata {
        labels      = local.labels
        annotations = local.annotations
      }

      spec {
        automount_service_account_token  = false
        enable_service_links             = false
        service_account_name             = kubernetes_service_account_v1.store_exporter.metadata[0].name
        termination_grace_period_seconds = 10

        security_context {
          run_as_non_root = true
          run_as_user     = var.program.user # to another one the kernel does not report what of a file is in memory
          run_as_group    = var.program.user

          seccomp_profile {
            type = "RuntimeDefault"
          }
        }

        dynamic "affinity" {
          for_each = var.node[*]

          content {
            node_affinity {
              required_during_scheduling_ignored_during_execution {
                node_selector_term {
                  match_expressions {
                    key      = "kubernetes.io/hostname"
                    operator = "In"
                    values   = [affinity.value]
                  }
                }
              }
            }
          }
        }

        dynamic "image_pull_secrets" {
          for_each = var.conventions.image_pull_secrets

          content {
            name = image_pull_secrets.value
          }
        }

        dynamic "toleration" { # the node may be reserved for GPU work
          for_each = var.conventions.tolerations

          content {
            key                = toleration.value.key
            operator           = toleration.value.operator
            value              = toleration.value.value
            effect             = toleration.value.effect
            toleration_seconds = toleration.value.seconds
          }
        }

        container {
          name              = local.name
          image             = var.image
          image_pull_policy = "Always"
          working_dir       = local._folder
          command = [
            "python3", "-m", "agent", "metrics", "--store", local._store, "--lock", "${local._folder}/lock/lock.json",
            "--name", var.namespace, "--seal", var.seal, "--listen", "0.0.0.0", "--port", tostring(local.port),
          ]

          env {
            name  = "PYTHONDONTWRITEBYTECODE"
            value = "1"
          }

          port {
            name           = "metrics"
            container_port = local.port
            protocol       = "TCP"
          }

          readiness_probe {
            period_seconds = 10

            http_get {
              path = "/health"
              port = "metrics"
            }
          }

          liveness_probe {
            period_seconds    = 30
            timeout_seconds   = 10
            failure_threshold = 3

            http_get {
              path = "/health"
              port = "metrics"
            }
          }

          resources {
            requests = { cpu = "10m", memory = "32Mi", "ephemeral-storage" = "1Mi" }
            limits   = { cpu = "500m", memory = "64Mi", "ephemeral-storage" = "16Mi" }
          }

          security_context {
            allow_privilege_escalation = false
            read_only_root_filesystem  = true
            run_as_non_root            = true # the provider's default is false

            capabilities {
              drop = ["ALL"]
            }
          }

          volume_mount {
            name       = "agent"
            mount_path = "${local._folder}/agent"
            read_only  = true
          }

          volume_mount {
            name       = "lock"
            mount_path = "${local._folder}/lock"
            read_only  = true
          }

          volume_mount {
            name       = "models"
            mount_path = local._store
            read_only  = true
          }
        }

        volume {
          name = "agent"

          config_map {
            name = var.program.agent
          }
        }

        volume {
          name = "lock"

          config_map {
            name = var.program.lock
          }
        }

        volume {
          name = "models"

          persistent_volume_claim {
            claim_name = var.claim
          }
        }
      }
    }
  }

  lifecycle {
    ignore_changes = [spec[0].template[0].metadata[0].annotations["kubectl.kubernetes.io/restartedAt"]] # kubectl rollout restart
  }
}

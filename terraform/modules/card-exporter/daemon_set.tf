locals {
  _user    = 10001
  _folder  = "/opt/corral"
  _keys    = "${local._folder}/keys"
  _records = "${local._folder}/records"
  _nodes   = sort(distinct(values(var.nodes)))
}

resource "kubernetes_daemon_set_v1" "card_exporter" {
  metadata {
    name        = local.name
    namespace   = kubernetes_namespace_v1.card_exporter.metadata[0].name
    labels      = local.labels
    annotations = local.annotations
  }

  wait_for_rollout = false # models are served without it

  spec {
    selector {
      match_labels = { "app.kubernetes.io/name" = local.name }
    }

    template {
      metadata {
        labels      = local.labels
        annotations = local.annotations
      }

      spec {
        automount_service_account_token  = true
        enable_service_links             = false
        host_pid                         = true # the driver reports the pids of the node
        runtime_class_name               = var.runtime_class
        service_account_name             = kubernetes_service_account_v1.card_exporter.metadata[0].name
        termination_grace_period_seconds = 10

        security_context {
          run_as_non_root = true
          run_as_user     = local._user
          run_as_group    = local._user

          seccomp_profile {
            type = "RuntimeDefault"
          }
        }

        affinity {
          node_affinity {
            required_during_scheduling_ignored_during_execution {
              node_selector_term {
                match_expressions {
                  key      = "kubernetes.io/hostname"
                  operator = "In"
                  values   = local._nodes
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

        init_container { # the kubelet makes the folder as root's; this hands it to the exporter's user, and ends
          name  = "records"
          image = var.image
          command = ["python3", "-c", <<-EOT
            import os, sys
            folder = "${local._records}"
            strange = [name for name in os.listdir(folder) if not name.endswith(".jsonl")]
            if strange:
                sys.exit(f"${var.records} has {strange[0]}, and must have records alone. Name another folder: records of card_exporter")
            os.chown(folder, ${local._user}, ${local._user})
          EOT
          ]

          resources {
            requests = { cpu = "10m", memory = "16Mi", "ephemeral-storage" = "1Mi" }
            limits   = { cpu = "500m", memory = "64Mi", "ephemeral-storage" = "1Mi" }
          }

          security_context {
            allow_privilege_escalation = false
            read_only_root_filesystem  = true
            run_as_non_root            = false
            run_as_user                = 0

            capabilities {
              add  = ["CHOWN"]
              drop = ["ALL"]
            }
          }

          volume_mount {
            name       = "records"
            mount_path = local._records
          }
        }

        container {
          name              = local.name
          image             = var.image
          image_pull_policy = "Always"
          working_dir       = local._folder
          command           = ["python3", "-m", "exporter", "${local._folder}/config/$(NODE_NAME).json"]

          env {
            name  = "PYTHONPATH"
            value = "${local._folder}/exporter/${local._wheel}"
          }

          env {
            name  = "PYTHONDONTWRITEBYTECODE"
            value = "1"
          }

          env { # nvidia-smi, and no card: the container's runtime adds the program for this
            name  = "NVIDIA_DRIVER_CAPABILITIES"
            value = "utility"
          }

          env {
            name  = "NVIDIA_VISIBLE_DEVICES"
            value = "all"
          }

          env {
            name = "NODE_NAME"

            value_from {
              field_ref {
                field_path = "spec.nodeName"
              }
            }
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
            requests = { cpu = "10m", memory = "48Mi", "ephemeral-storage" = "16Mi" }
            limits   = { cpu = "500m", memory = "96Mi", "ephemeral-storage" = "32Mi" }
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
            name       = "program"
            mount_path = "${local._folder}/exporter"
            read_only  = true
          }

          volume_mount {
            name       = "config"
            mount_path = "${local._folder}/config"
            read_only  = true
          }

          volume_mount {
            name       = "keys"
            mount_path = local._keys
            read_only  = true
          }

          volume_mount {
            name       = "records"
            mount_path = local._records
          }
        }

        volume {
          name = "program"

          config_map {
            name = module.program.name
          }
        }

        volume {
          name = "config"

          config_map {
            name = module.config.name
          }
        }

        volume { # of the node: every apply is a new pod, and what was recorded before it is what explains it
          name = "records"

          host_path {
            path = var.records
            type = "DirectoryOrCreate"
          }
        }

        volume { # `corral apply` writes it, so that no key is in Terraform's state; without it the metrics are there all the same
          name = "keys"

          secret {
            secret_name = "corral-monitor" # tools/corral/cluster/exporters.py
            optional    = true
          }
        }
      }
    }
  }

  lifecycle {
    ignore_changes = [spec[0].template[0].metadata[0].annotations["kubectl.kubernetes.io/restartedAt"]] # kubectl rollout restart
  }
}

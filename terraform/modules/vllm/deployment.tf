locals {
  # After SIGTERM vLLM ends when its answers have, at most after --shutdown-timeout of the lock's command line.
  _drain_seconds = try(tonumber(var.argv[index(var.argv, "--shutdown-timeout") + 1]), 0)
  _leave_seconds = 5 # until no proxy sends new requests here
  _grace_seconds = local._leave_seconds + local._drain_seconds + 25

  _probe_seconds = 5
  _weights_mib   = ceil(sum([for file in var.files : file.size]) / 1048576)
  _memory        = { request = "4096Mi", limit = "${8192 + local._weights_mib}Mi" } # the weights pass through the host's memory
  _gpu           = { (var.conventions.gpu_resource) = "1" }
}

resource "kubernetes_deployment_v1" "vllm" { # failed? corral status, docs/vllm.md
  metadata {
    name        = var.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  wait_for_rollout = true

  timeouts {
    create = "${var.rollout_minutes + 2}m"
    update = "${var.rollout_minutes + 2}m"
    delete = "5m"
  }

  spec {
    replicas                  = "1"
    progress_deadline_seconds = 60 * var.rollout_minutes
    revision_history_limit    = 3

    selector {
      match_labels = local.selector
    }

    strategy {
      type = "Recreate" # two copies would take the card's memory twice
    }

    template {
      metadata {
        labels      = local.labels
        annotations = local.annotations
      }

      spec {
        automount_service_account_token  = false
        enable_service_links             = false # its variables begin with VLLM_, which vLLM would take for its own
        priority_class_name              = var.priority_class
        restart_policy                   = "Always"
        runtime_class_name               = var.runtime_class
        termination_grace_period_seconds = local._grace_seconds

        security_context {
          run_as_non_root        = true
          run_as_user            = local.user
          run_as_group           = local.user
          fs_group               = local.user
          fs_group_change_policy = "OnRootMismatch"

          seccomp_profile {
            type = "RuntimeDefault"
          }
        }

        affinity {
          # Also after a delete or a drain no second copy starts while this one still answers.
          pod_anti_affinity {
            required_during_scheduling_ignored_during_execution {
              topology_key = "kubernetes.io/hostname"

              label_selector {
                match_labels = local.selector
              }
            }
          }

          dynamic "node_affinity" {
            for_each = var.node[*]

            content {
              required_during_scheduling_ignored_during_execution {
                node_selector_term {
                  match_expressions {
                    key      = "kubernetes.io/hostname"
                    operator = "In"
                    values   = [node_affinity.value]
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
          name              = local.app
          image             = var.image
          image_pull_policy = "Always"
          command           = local.command

          dynamic "env" {
            for_each = local.environment

            content {
              name  = env.key
              value = env.value
            }
          }

          port {
            name           = "http"
            container_port = var.port
            protocol       = "TCP"
          }

          # /health needs no key.  It answers only when the weights are loaded and the graphs captured.
          startup_probe {
            period_seconds    = local._probe_seconds
            timeout_seconds   = 5
            failure_threshold = ceil(var.load_seconds / local._probe_seconds)

            http_get {
              path = "/health"
              port = "http"
            }
          }

          readiness_probe {
            period_seconds    = local._probe_seconds
            timeout_seconds   = 5
            failure_threshold = 3

            http_get {
              path = "/health"
              port = "http"
            }
          }

          # 503 when the engine's process has ended: only a restart helps.
          liveness_probe {
            period_seconds    = 10
            timeout_seconds   = 10
            failure_threshold = 6

            http_get {
              path = "/health"
              port = "http"
            }
          }

          lifecycle {
            pre_stop {
              exec {
                command = ["sleep", tostring(local._leave_seconds)]
              }
            }
          }

          resources {
            requests = merge(local._gpu, { cpu = var.cpu.request, memory = local._memory.request, "ephemeral-storage" = "4096Mi" })
            limits   = merge(local._gpu, { cpu = var.cpu.limit, memory = local._memory.limit, "ephemeral-storage" = "4096Mi" })
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
            name       = "models"
            mount_path = local.store
            read_only  = true
          }

          volume_mount {
            name       = "key"
            mount_path = local.keys
            read_only  = true
          }

          volume_mount {
            name       = "tmp"
            mount_path = "/tmp"
          }

          volume_mount {
            name       = "shared-memory"
            mount_path = "/dev/shm"
          }
        }

        volume {
          name = "models"

          persistent_volume_claim {
            claim_name = var.claim
            read_only  = true
          }
        }

        volume {
          name = "key"

          secret {
            secret_name  = local.secret
            default_mode = "0440"

            items {
              key  = "internal"
              path = "internal"
            }
          }
        }

        volume {
          name = "tmp"

          empty_dir {
            size_limit = "3072Mi"
          }
        }

        volume {
          name = "shared-memory"

          empty_dir {
            medium     = "Memory"
            size_limit = "1024Mi"
          }
        }
      }
    }
  }

  lifecycle {
    ignore_changes = [spec[0].template[0].metadata[0].annotations["kubectl.kubernetes.io/restartedAt"]] # kubectl rollout restart

    precondition {
      condition     = local.argv_is_of_vllm
      error_message = "The command line of ${var.model} does not begin with vllm serve. Run: corral lock"
    }
  }

  # The policy exists before the pod starts.
  depends_on = [kubernetes_network_policy_v1.vllm, var.after]
}

locals {
  user = 10001 # uid and gid, those of the public image

  # llama-swap has finished, or gives up, 35 s after SIGTERM.
  _grace_seconds = var.drain_seconds + 40

  _resources = { "ephemeral-storage" = "${local.ephemeral_mib}Mi", "nvidia.com/gpu" = "1" }
}

resource "kubernetes_deployment_v1" "llama_swap" { # failed? corral status, docs/runbooks/pod-not-ready.md
  metadata {
    name        = local.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = var.image_from == null ? null : { "corral/image-from" = var.image_from } # corral status names the place to correct it
  }

  wait_for_rollout = true

  timeouts {
    create = "17m"
    update = "17m"
    delete = "5m"
  }

  spec {
    replicas                  = "1"
    progress_deadline_seconds = 900 # includes the pull of an image of several GB
    revision_history_limit    = 3

    selector {
      match_labels = { "app.kubernetes.io/name" = local.name }
    }

    strategy {
      type = "Recreate" # two copies would take the card's memory twice
    }

    template {
      metadata {
        labels      = local.labels
        annotations = { "checksum/config" = sha256(jsonencode(local.files)) } # llama-swap reads its configuration once: a change is a new pod
      }

      spec {
        automount_service_account_token  = false
        enable_service_links             = false
        restart_policy                   = "Always"
        runtime_class_name               = var.runtime_class
        service_account_name             = kubernetes_service_account_v1.llama_swap.metadata[0].name
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

        toleration {
          key      = "nvidia.com/gpu"
          operator = "Exists"
        }

        container {
          name              = local.name
          image             = var.image
          image_pull_policy = "Always"

          # A crash must not write a core as large as the model.
          command = ["sh", "-c", "ulimit -c 0 && exec llama-swap -config ${local.folder}/config.yaml -listen :8080"]

          env {
            name  = "HOME" # only /tmp is writable
            value = "/tmp"
          }

          env {
            name  = "CUDA_CACHE_PATH"
            value = "/tmp/cuda"
          }

          env {
            name  = "CUDA_CACHE_MAXSIZE"
            value = tostring(local.cuda_cache_mib * local._mib)
          }

          port {
            name           = "http"
            container_port = 8080
            protocol       = "TCP"
          }

          # Started: the store holds every model, and llama-swap answers.  The pod's event names a missing file.
          startup_probe {
            period_seconds    = 2
            timeout_seconds   = 5
            failure_threshold = 60

            exec {
              command = ["sh", "${local.folder}/started.sh", "${local.folder}/models.txt"]
            }
          }

          # Ready: the part that starts and stops models answers.
          readiness_probe {
            period_seconds    = 5
            timeout_seconds   = 3
            failure_threshold = 3

            http_get {
              path = "/running"
              port = "http"
            }
          }

          # Alive: the process answers, also while a model loads for any time.  Only a process that hangs for a minute is killed.
          liveness_probe {
            period_seconds    = 10
            timeout_seconds   = 5
            failure_threshold = 6

            http_get {
              path = "/health"
              port = "http"
            }
          }

          lifecycle {
            pre_stop {
              exec {
                command = ["sh", "${local.folder}/drain.sh", tostring(var.drain_seconds)]
              }
            }
          }

          resources {
            requests = merge(local._resources, { cpu = var.cpu.request, memory = "${local.memory_request_mib}Mi" })
            limits   = merge(local._resources, { cpu = var.cpu.limit, memory = "${local.memory_limit_mib}Mi" })
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
            name       = "config"
            mount_path = local.folder
            read_only  = true
          }

          volume_mount {
            name       = "models"
            mount_path = local.store
            read_only  = true
          }

          volume_mount {
            name       = "tmp"
            mount_path = "/tmp"
          }
        }

        volume {
          name = "config"

          config_map {
            name         = kubernetes_config_map_v1.llama_swap.metadata[0].name
            default_mode = "0555" # preflight.sh is executed
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
          name = "tmp"

          empty_dir {
            size_limit = "${local.tmp_mib}Mi"
          }
        }
      }
    }
  }

  # The policy exists before the pod starts.
  depends_on = [kubernetes_network_policy_v1.llama_swap]
}

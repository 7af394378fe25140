locals {
  user = 10001 # uid and gid; the Ansible roles make it the owner of the store

  _folder = "/opt/corral"
  _store  = "/models"
  _token  = "/run/secrets/corral/token"

  _agent_options = ["--store", local._store, "--lock", "${local._folder}/lock/lock.json", "--termination-log", "/dev/termination-log"]

  # Exit code 1 of `agent warm` means that not everything stayed in memory, which is no failure.  A shell as process 1 ignores TERM.
  _warm = "trap 'kill $!' TERM; python3 -m agent warm \"$@\" & wait $!; [ $? -le 1 ]"

  # An IPv6 address is without its brackets; null for https.
  _http_host = try(coalesce(regex("^http://(?:\\[([^]]+)\\]|([^/:]+))", var.hub)...), null)

  _environment = merge(
    { PYTHONDONTWRITEBYTECODE = "1", PYTHONUNBUFFERED = "1" },
    var.hub == null ? {} : { HF_ENDPOINT = var.hub },
    local._http_host == null ? {} : { CORRAL_ALLOW_HTTP = local._http_host },
    var.hf_token_secret == null ? {} : { HF_TOKEN_PATH = local._token },
  )
}

resource "kubernetes_job_v1" "download_models" { # failed? corral status, docs/runbooks/download-job-failed.md
  metadata {
    name        = local.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  wait_for_completion = true

  timeouts {
    create = "${var.timeout_minutes + 2}m"
    update = "${var.timeout_minutes + 2}m"
    delete = "2m"
  }

  spec {
    active_deadline_seconds = 60 * var.timeout_minutes
    backoff_limit           = 4

    pod_failure_policy {
      rule { # a drained node or an eviction does not count as a failed attempt
        action = "Ignore"

        on_pod_condition {
          type   = "DisruptionTarget"
          status = "True"
        }
      }

      rule { # the agent's own exit codes: wrong content, wrong configuration.  Another attempt would end in the same way.
        action = "FailJob"

        on_exit_codes {
          container_name = "fetch"
          operator       = "In"
          values         = [1, 2]
        }
      }
    }

    template {
      metadata {
        labels      = local.labels
        annotations = local.annotations
      }

      spec {
        automount_service_account_token  = false
        enable_service_links             = false
        restart_policy                   = "Never"
        service_account_name             = kubernetes_service_account_v1.download_models.metadata[0].name
        termination_grace_period_seconds = 15

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

        init_container {
          name              = "fetch"
          image             = var.image
          image_pull_policy = "Always"
          working_dir       = local._folder
          command           = concat(["python3", "-m", "agent", "fetch"], local._agent_options)

          dynamic "env" {
            for_each = local._environment

            content {
              name  = env.key
              value = env.value
            }
          }

          resources {
            requests = { cpu = "250m", memory = "${local.fetch_mib}Mi", "ephemeral-storage" = "64Mi" }
            limits   = { cpu = "4", memory = "${local.fetch_mib}Mi", "ephemeral-storage" = "256Mi" }
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
          }

          dynamic "volume_mount" {
            for_each = var.hf_token_secret[*]

            content {
              name       = "token"
              mount_path = dirname(local._token)
              read_only  = true
            }
          }
        }

        container {
          name              = "warm"
          image             = var.image
          image_pull_policy = "Always"
          working_dir       = local._folder
          command           = concat(["sh", "-c", local._warm, "warm"], local._agent_options, keys(var.models))

          env {
            name  = "PYTHONDONTWRITEBYTECODE"
            value = "1"
          }

          resources {
            requests = { cpu = "100m", memory = "64Mi", "ephemeral-storage" = "64Mi" }
            limits   = { cpu = "2", memory = "${local.warm_mib}Mi", "ephemeral-storage" = "256Mi" }
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
            name         = module.agent.name
            default_mode = "0444"
          }
        }

        volume {
          name = "lock"

          config_map {
            name         = module.lock.name
            default_mode = "0444"
          }
        }

        volume {
          name = "models"

          persistent_volume_claim {
            claim_name = var.claim
          }
        }

        dynamic "volume" {
          for_each = var.hf_token_secret[*]

          content {
            name = "token"

            secret {
              secret_name  = volume.value
              default_mode = "0440"

              items {
                key  = "token"
                path = basename(local._token)
              }
            }
          }
        }
      }
    }
  }

  # A completed Job has nothing to change.  A new one replaces it only for other files, another agent or another store; Terraform then
  # uses the complete configuration, including the attributes that are ignored here.
  lifecycle {
    ignore_changes       = [spec]
    replace_triggered_by = [terraform_data.files.output]
  }

  depends_on = [kubernetes_network_policy_v1.download_models]
}

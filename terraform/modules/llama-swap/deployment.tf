locals {
  user = 10001 # uid and gid, those of the public image

  # llama-swap has finished, or gives up, 35 s after SIGTERM.  Caddy and the guard get theirs after that, one after the other.
  _grace_seconds = var.drain_seconds + 50

  _swap     = "127.0.0.1:${local.ports.llama_swap}"
  _internal = "${local.keys}/internal"
  _ask      = ["sh", "${local.folder}/ask.sh"]
  _if_well  = [local._internal, "--fail", "--show-error", "--max-time", "2", "--output", "/dev/null"]

  # Any answer: what is behind the guard is no reason to start the guard again.
  _guard_answers = join("; ", [
    "import http.client as http",
    "guard = http.HTTPConnection('127.0.0.1', ${local.ports.guard}, timeout=5)",
    "guard.request('GET', '/health')",
    "guard.getresponse()",
  ])

  # Without an image of its own the engine is in llama-swap's, and both are on PATH.
  _has_own_engine = var.engine_image != null
  _programs       = "/opt/llama-swap" # the volume with llama-swap, beside an engine of its own image
  _app            = "/app"            # where the public images have their programs; llama.cpp's does not have it on PATH

  _start = local._has_own_engine ? [
    "export PATH=\"$PATH:${local._app}\"",
    "{ command -v llama-server >/dev/null || { echo 'the image of llama-server has no such program, neither on PATH nor in ${local._app}' >&2; exit 1; }; }",
    "exec ${local._programs}/llama-swap",
  ] : ["exec llama-swap"]

  _resources = { "ephemeral-storage" = "${local.ephemeral_mib}Mi", (var.conventions.gpu_resource) = "1" }
}

resource "kubernetes_deployment_v1" "llama_swap" { # failed? corral status, docs/runbooks/pod-not-ready.md
  metadata {
    name        = local.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = var.image_from == null ? local.annotations : merge(local.annotations, { "corral/image-from" = var.image_from }) # corral status has it
  }

  wait_for_rollout = true

  timeouts {
    create = "${var.rollout_minutes + 2}m"
    update = "${var.rollout_minutes + 2}m"
    delete = "5m"
  }

  spec {
    replicas                  = "1"
    progress_deadline_seconds = 60 * var.rollout_minutes # includes the pull of an image of several GB
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
        enable_service_links             = false
        priority_class_name              = var.priority_class
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

        affinity {
          # Recreate is for a change of the Deployment.  After a delete, a drain or an eviction the next pod is made while this one still
          # streams; a pod that is leaving counts here until it has ended.
          pod_anti_affinity {
            required_during_scheduling_ignored_during_execution {
              topology_key = "kubernetes.io/hostname"

              label_selector {
                match_labels = { "app.kubernetes.io/name" = local.app }
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

        # Before and behind llama-swap in time: Kubernetes starts these two first, and ends them when llama-swap has ended.
        init_container {
          name              = "guard"
          image             = var.guard_image
          image_pull_policy = "Always"
          restart_policy    = "Always"
          working_dir       = "/opt/corral"
          command           = ["python3", "-m", "door", "${local.door_folder}/guard.json"]

          env {
            name  = "PYTHONDONTWRITEBYTECODE"
            value = "1"
          }

          port { # for `corral status` and `corral why`; it is on loopback, as llama-swap is
            name           = "guard"
            container_port = local.ports.guard
            protocol       = "TCP"
          }

          liveness_probe {
            period_seconds    = 30
            timeout_seconds   = 10
            failure_threshold = 3

            exec {
              command = ["python3", "-c", local._guard_answers]
            }
          }

          resources {
            requests = { cpu = "50m", memory = "${local.guard_mib.request}Mi", "ephemeral-storage" = "64Mi" }
            limits   = { cpu = "1", memory = "${local.guard_mib.limit}Mi", "ephemeral-storage" = "64Mi" }
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
            name       = "guard"
            mount_path = "/opt/corral/door"
            read_only  = true
          }

          volume_mount {
            name       = "door"
            mount_path = local.door_folder
            read_only  = true
          }

          volume_mount {
            name       = "guard-keys"
            mount_path = local.keys
            read_only  = true
          }

          dynamic "volume_mount" {
            for_each = var.has_adapters ? [local.adapters] : []

            content {
              name       = "adapters"
              mount_path = volume_mount.value
              read_only  = true
            }
          }
        }

        init_container {
          name              = "door"
          image             = var.door_image
          image_pull_policy = "Always"
          restart_policy    = "Always"

          # The image's own program has a capability (to open ports below 1024), and the kernel starts no such program where all
          # are dropped.  A copy has none.
          command = ["sh", "-c", "cp /usr/bin/caddy /tmp/caddy && exec /tmp/caddy run --config ${local.door_folder}/caddy.json"]

          dynamic "env" {
            for_each = { HOME = "/tmp", XDG_CONFIG_HOME = "/tmp", XDG_DATA_HOME = "/tmp" }

            content {
              name  = env.key
              value = env.value
            }
          }

          port {
            name           = "http"
            container_port = local.ports.door
            protocol       = "TCP"
          }

          # Ready: a request gets through both to llama-swap.
          readiness_probe {
            period_seconds    = 10
            timeout_seconds   = 5
            failure_threshold = 3

            http_get {
              path = "/health"
              port = "http"

              http_header {
                name  = "Host"
                value = "localhost"
              }
            }
          }

          liveness_probe {
            period_seconds    = 10
            timeout_seconds   = 5
            failure_threshold = 6

            tcp_socket {
              port = "http"
            }
          }

          resources {
            requests = { cpu = "50m", memory = "${local.door_mib.request}Mi", "ephemeral-storage" = "${local.door_disk_mib}Mi" }
            limits   = { cpu = "2", memory = "${local.door_mib.limit}Mi", "ephemeral-storage" = "${local.door_disk_mib}Mi" }
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
            name       = "door"
            mount_path = local.door_folder
            read_only  = true
          }

          volume_mount {
            name       = "door-tmp"
            mount_path = "/tmp"
          }
        }

        dynamic "init_container" {
          for_each = var.engine_image[*]

          content {
            name              = local.copy
            image             = var.image
            image_pull_policy = "Always"
            command           = ["sh", "-c", file("${path.module}/copy.sh"), "copy.sh", local._programs, local._app]

            resources {
              requests = { cpu = "50m", memory = "${local.copy_mib.request}Mi", "ephemeral-storage" = "${local.programs_mib}Mi" }
              limits   = { cpu = "1", memory = "${local.copy_mib.limit}Mi", "ephemeral-storage" = "${local.programs_mib}Mi" }
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
              name       = "programs"
              mount_path = local._programs
            }
          }
        }

        container {
          name              = local.app
          image             = coalesce(var.engine_image, var.image)
          image_pull_policy = "Always"

          # A crash must not write a core as large as the model.  The key is in the environment, not in the Deployment.
          command = ["sh", "-c", "${join(" && ", concat([
            "ulimit -c 0",
            "${var.api_key_env}=$(cat ${local._internal})",
            "export ${var.api_key_env}",
          ], local._start))} -config ${local.folder}/config.yaml -listen ${local._swap}"]

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

          # Probes run in the container: llama-swap listens on loopback only.
          #
          # Started: the store holds every model, and llama-swap answers.  The pod's event names a missing file.
          startup_probe {
            period_seconds    = 2
            timeout_seconds   = 5
            failure_threshold = 60

            exec {
              command = ["sh", "${local.folder}/started.sh", "${local.folder}/models.txt", "http://${local._swap}", local._internal]
            }
          }

          # Ready: the part that starts and stops models answers.
          readiness_probe {
            period_seconds    = 5
            timeout_seconds   = 3
            failure_threshold = 3

            exec {
              command = concat(local._ask, ["http://${local._swap}/running"], local._if_well)
            }
          }

          # Alive: the process answers, also while a model loads for any time.  Only a process that hangs for a minute is killed.
          liveness_probe {
            period_seconds    = 10
            timeout_seconds   = 5
            failure_threshold = 6

            exec {
              command = concat(local._ask, ["http://${local._swap}/health"], local._if_well)
            }
          }

          lifecycle {
            pre_stop {
              exec {
                command = ["sh", "${local.folder}/drain.sh", tostring(var.drain_seconds), "http://${local._swap}", local._internal]
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
            name       = "llama-swap-key"
            mount_path = local.keys
            read_only  = true
          }

          volume_mount {
            name       = "tmp"
            mount_path = "/tmp"
          }

          dynamic "volume_mount" {
            for_each = var.engine_image[*]

            content {
              name       = "programs"
              mount_path = local._programs
              read_only  = true
            }
          }
        }

        volume {
          name = "config"

          config_map {
            name         = module.config.name
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
          name = "door"

          config_map {
            name = module.door.name
          }
        }

        volume {
          name = "guard"

          config_map {
            name = module.guard.name
          }
        }

        # Each container gets the entries that it needs, and none the operator's key.  A Secret that does not exist keeps the pod
        # waiting; `corral apply` and `corral keys` write it, so that no key is in Terraform's state.
        dynamic "volume" {
          for_each = { guard-keys = ["internal", "keys.json"], llama-swap-key = ["internal"] }

          content {
            name = volume.key

            secret {
              secret_name  = local.keys_secret
              default_mode = "0440"

              dynamic "items" {
                for_each = volume.value

                content {
                  key  = items.value
                  path = items.value
                }
              }
            }
          }
        }

        # Not by its content: a version that was chosen reaches the pod that serves.
        dynamic "volume" {
          for_each = var.has_adapters ? [local.chosen] : []

          content {
            name = "adapters"

            config_map {
              name     = volume.value
              optional = true
            }
          }
        }

        volume {
          name = "door-tmp"

          empty_dir {
            size_limit = "${local.door_tmp_mib}Mi"
          }
        }

        volume {
          name = "tmp"

          empty_dir {
            size_limit = "${local.tmp_mib}Mi"
          }
        }

        dynamic "volume" {
          for_each = var.engine_image[*]

          content {
            name = "programs"

            empty_dir {
              size_limit = "${local.programs_mib}Mi"
            }
          }
        }
      }
    }
  }

  lifecycle {
    ignore_changes = [spec[0].template[0].metadata[0].annotations["kubectl.kubernetes.io/restartedAt"]] # kubectl rollout restart
  }

  # The policy exists before the pod starts.
  depends_on = [kubernetes_network_policy_v1.llama_swap, var.after]
}

locals {
  _folder = "/etc/litellm"
  _tmp    = "/tmp"

  _secrets = merge({
    LITELLM_MASTER_KEY = { name = local.secret, key = "master" }
    LITELLM_SALT_KEY   = { name = local.secret, key = "salt" } # of what it encrypts in its database
    CORRAL_DOOR_KEY    = { name = local.secret, key = "door" }
  }, { for one in var.database[*] : "DATABASE_URL" => { name = one.secret, key = one.key } })

  _settings = {
    HOME                         = local._tmp
    LITELLM_LOCAL_MODEL_COST_MAP = "True" # else it asks the internet for a price list when it starts
    LITELLM_MODE                 = "PRODUCTION"
    LITELLM_MIGRATION_DIR        = "${local._tmp}/migrations"
    LITELLM_NON_ROOT             = "true"
    DISABLE_ADMIN_UI             = "True"
    NO_DOCS                      = "True"
    PYTHONDONTWRITEBYTECODE      = "1"
  }
}

resource "kubernetes_deployment_v1" "gateway" { # failed? corral status, docs/runbooks/pod-not-ready.md
  metadata {
    name        = local.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  wait_for_rollout = true # an apply ends when the models of its lock answer here, too

  timeouts {
    create = "${var.rollout_minutes + 2}m"
    update = "${var.rollout_minutes + 2}m"
    delete = "5m"
  }

  spec {
    replicas                  = 1
    progress_deadline_seconds = 60 * var.rollout_minutes
    revision_history_limit    = 3

    selector {
      match_labels = { "app.kubernetes.io/name" = local.name }
    }

    strategy {
      type = "RollingUpdate"

      rolling_update {
        max_surge       = "1"
        max_unavailable = "0" # the old pod answers until the new one is ready
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
        service_account_name             = kubernetes_service_account_v1.gateway.metadata[0].name
        termination_grace_period_seconds = var.drain_seconds + 15

        security_context {
          run_as_non_root = true
          run_as_user     = 10001
          run_as_group    = 10001

          seccomp_profile {
            type = "RuntimeDefault"
          }
        }

        dynamic "image_pull_secrets" {
          for_each = var.conventions.image_pull_secrets

          content {
            name = image_pull_secrets.value
          }
        }

        dynamic "toleration" {
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
          working_dir       = local._tmp
          args              = ["--config", "${local._folder}/config.yaml", "--host", "0.0.0.0", "--port", tostring(local.port)]

          dynamic "env" {
            for_each = local._settings

            content {
              name  = env.key
              value = env.value
            }
          }

          dynamic "env" {
            for_each = local._secrets

            content {
              name = env.key

              value_from {
                secret_key_ref {
                  name = env.value.name
                  key  = env.value.key
                }
              }
            }
          }

          port {
            name           = "http"
            container_port = local.port
            protocol       = "TCP"
          }

          # These ask LiteLLM alone; its /health would ask the models.
          startup_probe {
            period_seconds    = 2
            timeout_seconds   = 5
            failure_threshold = 30 * var.rollout_minutes

            http_get {
              path = "/health/readiness"
              port = "http"
            }
          }

          readiness_probe {
            period_seconds    = 10
            timeout_seconds   = 5
            failure_threshold = 3

            http_get {
              path = "/health/readiness"
              port = "http"
            }
          }

          liveness_probe {
            period_seconds    = 30
            timeout_seconds   = 10
            failure_threshold = 4

            http_get {
              path = "/health/liveliness"
              port = "http"
            }
          }

          lifecycle {
            pre_stop {
              exec {
                command = ["sleep", "5"] # until no Service leads here
              }
            }
          }

          resources {
            requests = { cpu = "100m", memory = "${var.memory_mib.request}Mi", "ephemeral-storage" = "16Mi" }
            limits   = { cpu = "2", memory = "${var.memory_mib.limit}Mi", "ephemeral-storage" = "1Gi" }
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
            mount_path = local._folder
            read_only  = true
          }

          volume_mount {
            name       = "tmp"
            mount_path = local._tmp
          }
        }

        volume {
          name = "config"

          config_map {
            name = module.config.name
          }
        }

        volume {
          name = "tmp"

          empty_dir {
            size_limit = "512Mi"
          }
        }
      }
    }
  }

  lifecycle {
    ignore_changes = [spec[0].template[0].metadata[0].annotations["kubectl.kubernetes.io/restartedAt"]] # kubectl rollout restart
  }

  depends_on = [kubernetes_network_policy_v1.gateway, var.after]
}

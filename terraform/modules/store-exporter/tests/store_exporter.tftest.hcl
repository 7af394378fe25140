# What the exporter's pod is, and who reads it.

mock_provider "kubernetes" {}

variables {
  namespace = "llama-cpp"
  claim     = "models-1a2b3c4d"
  image     = "python:3.13-slim@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  node      = "k8s-node1"
  seal      = "0123456789abcdef"
  program   = { agent = "download-models-agent-0a1b2c3d4e", lock = "download-models-lock-5f6a7b8c9d", user = 10001 }
}

run "it_reads_the_store_and_can_change_nothing" {
  command = plan

  assert {
    condition = { for mount in kubernetes_deployment_v1.store_exporter.spec[0].template[0].spec[0].container[0].volume_mount :
      mount.mount_path => mount.read_only
    } == { "/opt/corral/agent" = true, "/opt/corral/lock" = true, "/models" = true }
    error_message = "An exporter must not be able to write into the store."
  }

  assert {
    condition = alltrue([for container in kubernetes_deployment_v1.store_exporter.spec[0].template[0].spec[0].container :
      container.security_context[0].read_only_root_filesystem && !container.security_context[0].allow_privilege_escalation
      && container.security_context[0].run_as_non_root && container.security_context[0].capabilities[0].drop == tolist(["ALL"])
    ])
    error_message = "It must have no capability and no root."
  }

  assert {
    condition     = kubernetes_deployment_v1.store_exporter.spec[0].template[0].spec[0].automount_service_account_token == false
    error_message = "It asks the API server for nothing."
  }

  assert {
    condition     = kubernetes_deployment_v1.store_exporter.spec[0].template[0].spec[0].security_context[0].run_as_user == "10001"
    error_message = "The kernel reports what of a file is in memory to its owner alone."
  }
}

run "its_name_in_the_metrics_is_the_namespace" {
  command = plan

  assert {
    condition = kubernetes_deployment_v1.store_exporter.spec[0].template[0].spec[0].container[0].command == tolist([
      "python3", "-m", "agent", "metrics", "--store", "/models", "--lock", "/opt/corral/lock/lock.json",
      "--name", "llama-cpp", "--seal", "0123456789abcdef", "--listen", "0.0.0.0", "--port", "9461",
    ])
    error_message = "The alerts are for this name."
  }
}

run "it_runs_where_the_models_are_served" {
  command = plan

  assert {
    condition     = kubernetes_deployment_v1.store_exporter.spec[0].template[0].spec[0].affinity[0].node_affinity[0].required_during_scheduling_ignored_during_execution[0].node_selector_term[0].match_expressions[0].values == toset(["k8s-node1"])
    error_message = "The page cache of another machine is of no use."
  }
}

run "another_lock_is_another_pod" {
  command = plan

  assert {
    condition     = [for volume in kubernetes_deployment_v1.store_exporter.spec[0].template[0].spec[0].volume : volume.config_map[0].name if length(volume.config_map) > 0] == ["download-models-agent-0a1b2c3d4e", "download-models-lock-5f6a7b8c9d"] && kubernetes_deployment_v1.store_exporter.spec[0].strategy[0].type == "Recreate"
    error_message = "The lock is read once."
  }
}

run "only_the_named_namespaces_read_it" {
  command = plan

  variables {
    scraped_from = ["monitoring"]
  }

  assert {
    condition     = flatten([for rule in kubernetes_network_policy_v1.store_exporter.spec[0].ingress : [for from in rule.from : from.namespace_selector[0].match_labels["kubernetes.io/metadata.name"]]]) == ["monitoring"]
    error_message = "No other namespace may connect."
  }

  assert {
    condition     = length(kubernetes_network_policy_v1.store_exporter.spec[0].egress) == 0
    error_message = "It connects to nothing."
  }
}

run "by_default_no_pod_reads_it" {
  command = plan

  assert {
    condition     = length(kubernetes_network_policy_v1.store_exporter.spec[0].ingress) == 0
    error_message = "No namespace was named."
  }
}

run "a_tag_is_no_image" {
  command = plan

  variables {
    image = "python:3.13-slim"
  }

  expect_failures = [var.image]
}

run "without_conventions_it_is_as_it_was" {
  command = plan

  assert {
    condition     = length(kubernetes_deployment_v1.store_exporter.spec[0].template[0].spec[0].image_pull_secrets) == 0
    error_message = "None is named."
  }

  assert {
    condition     = [for one in kubernetes_deployment_v1.store_exporter.spec[0].template[0].spec[0].toleration : [one.key, one.operator]] == [["nvidia.com/gpu", "Exists"]]
    error_message = "The usual taint must be tolerated, and no other."
  }

  assert {
    condition = alltrue([for metadata in [kubernetes_deployment_v1.store_exporter.metadata[0], kubernetes_deployment_v1.store_exporter.spec[0].template[0].metadata[0]] : (
      metadata.annotations == null && alltrue([for key in keys(metadata.labels) : startswith(key, "app.kubernetes.io/")])
    )])
    error_message = "No annotation and no other label must be there."
  }
}

run "it_has_what_the_cluster_asks_of_every_pod" {
  command = plan

  variables {
    conventions = {
      labels             = { team = "home", "app.kubernetes.io/part-of" = "another" }
      annotations        = { "example.org/owner" = "ops" }
      image_pull_secrets = ["registry", "mirror"]
      tolerations = [
        { key = "nvidia.com/mig-1g.5gb", operator = "Exists" },
        { key = "dedicated", value = "gpu", effect = "NoExecute", seconds = 60 },
      ]
    }
  }

  assert {
    condition     = kubernetes_deployment_v1.store_exporter.spec[0].template[0].spec[0].image_pull_secrets[*].name == tolist(["registry", "mirror"])
    error_message = "Its images must be pulled with each of the Secrets."
  }

  assert {
    condition = [for one in kubernetes_deployment_v1.store_exporter.spec[0].template[0].spec[0].toleration : [
      for value in [one.key, one.operator, one.value, one.effect, one.toleration_seconds] : value == null ? "" : value
    ]] == [["nvidia.com/mig-1g.5gb", "Exists", "", "", ""], ["dedicated", "Equal", "gpu", "NoExecute", "60"]]
    error_message = "The node may be reserved in several ways."
  }

  assert {
    condition = alltrue([for metadata in [kubernetes_deployment_v1.store_exporter.metadata[0], kubernetes_deployment_v1.store_exporter.spec[0].template[0].metadata[0]] : (
      metadata.labels.team == "home" && metadata.labels["app.kubernetes.io/part-of"] == "corral"
      && metadata.annotations == tomap({ "example.org/owner" = "ops" })
    )])
    error_message = "Object and pod must have the labels and annotations, and the module's own win."
  }
}

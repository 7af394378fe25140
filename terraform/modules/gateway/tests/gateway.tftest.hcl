# What LiteLLM's pod is, who reaches it, and what it reaches.

mock_provider "kubernetes" {}

variables {
  namespace          = "llama-cpp"
  allowed_namespaces = ["open-webui", "home-assistant"]
  image              = "ghcr.io/berriai/litellm-non_root:1.106.2@sha256:4444444444444444444444444444444444444444444444444444444444444444"
  config             = "model_list: []\n"
}

run "it_is_restricted_and_writes_to_its_own_memory_alone" {
  command = plan

  assert {
    condition = alltrue([for one in kubernetes_deployment_v1.gateway.spec[0].template[0].spec[0].container : (
      one.security_context[0].read_only_root_filesystem && !one.security_context[0].allow_privilege_escalation
      && one.security_context[0].run_as_non_root && one.security_context[0].capabilities[0].drop == tolist(["ALL"])
    )])
    error_message = "It must have no capability and no root."
  }

  assert {
    condition = { for one in kubernetes_deployment_v1.gateway.spec[0].template[0].spec[0].container[0].volume_mount : one.mount_path => coalesce(one.read_only, false) } == {
      "/etc/litellm" = true, "/tmp" = false
    }
    error_message = "Its configuration is read, and only a folder that ends with the pod is written."
  }

  assert {
    condition     = kubernetes_deployment_v1.gateway.spec[0].template[0].spec[0].automount_service_account_token == false
    error_message = "It asks the API server for nothing."
  }
}

run "its_probes_ask_litellm_alone" {
  command = plan

  assert {
    condition = [for one in kubernetes_deployment_v1.gateway.spec[0].template[0].spec[0].container : [
      one.startup_probe[0].http_get[0].path, one.readiness_probe[0].http_get[0].path, one.liveness_probe[0].http_get[0].path
    ]] == [["/health/readiness", "/health/readiness", "/health/liveliness"]]
    error_message = "LiteLLM's /health asks the models, and would load each."
  }
}

run "its_keys_are_references_and_stand_nowhere" {
  command = plan

  assert {
    condition = {
      for one in kubernetes_deployment_v1.gateway.spec[0].template[0].spec[0].container[0].env :
      one.name => "${one.value_from[0].secret_key_ref[0].name} ${one.value_from[0].secret_key_ref[0].key}" if length(one.value_from) > 0
      } == {
      LITELLM_MASTER_KEY = "corral-gateway master", LITELLM_SALT_KEY = "corral-gateway salt", CORRAL_DOOR_KEY = "corral-gateway door"
    }
    error_message = "Each key must come from the Secret, and there is no database by default."
  }
}

run "the_database_is_a_reference_too_and_the_only_other_address" {
  command = plan

  variables {
    database = { secret = "litellm-db", cidrs = ["192.168.1.30/32"] }
  }

  assert {
    condition = [for one in kubernetes_deployment_v1.gateway.spec[0].template[0].spec[0].container[0].env :
      "${one.value_from[0].secret_key_ref[0].name} ${one.value_from[0].secret_key_ref[0].key}" if one.name == "DATABASE_URL"
    ] == ["litellm-db url"]
    error_message = "The address with its password must stay in the operator's Secret."
  }

  assert {
    condition = [for rule in kubernetes_network_policy_v1.gateway.spec[0].egress :
      [rule.ports[0].port, rule.to[0].ip_block[0].cidr] if length(rule.to) > 0 && try(length(rule.to[0].ip_block) > 0, false)
    ] == [["5432", "192.168.1.30/32"]]
    error_message = "Its port must be open there, and nowhere else."
  }
}

run "only_the_named_namespaces_reach_it_and_it_reaches_the_door_alone" {
  command = plan

  assert {
    condition = flatten([for rule in kubernetes_network_policy_v1.gateway.spec[0].ingress : [
      for from in rule.from : from.namespace_selector[0].match_labels["kubernetes.io/metadata.name"]
    ]]) == ["home-assistant", "open-webui"]
    error_message = "No other namespace may connect."
  }

  assert {
    condition = [for rule in kubernetes_network_policy_v1.gateway.spec[0].egress :
      [rule.ports[0].port, rule.to[0].pod_selector[0].match_labels["app.kubernetes.io/name"]] if length(rule.to) > 0
    ] == [["8080", "llama-swap"]]
    error_message = "It must reach the door's port of llama-swap's pods, and no other address."
  }

  assert {
    condition     = [for rule in kubernetes_network_policy_v1.gateway.spec[0].egress : [for one in rule.ports : "${one.protocol} ${one.port}"] if length(rule.to) == 0] == [["UDP 53", "TCP 53"]]
    error_message = "Beside that only the resolver is open."
  }
}

run "without_a_namespace_no_pod_reaches_it" {
  command = plan

  variables {
    allowed_namespaces = []
  }

  assert {
    condition     = length(kubernetes_network_policy_v1.gateway.spec[0].ingress) == 0
    error_message = "A rule without from would admit every pod."
  }
}

run "another_list_is_another_pod_and_the_old_one_answers_until_then" {
  command = plan

  assert {
    condition     = strcontains(kubernetes_deployment_v1.gateway.spec[0].template[0].spec[0].volume[0].config_map[0].name, substr(sha256(jsonencode([{ "config.yaml" = var.config }, {}])), 0, 10))
    error_message = "The ConfigMap must be named for its content."
  }

  assert {
    condition     = kubernetes_deployment_v1.gateway.wait_for_rollout && kubernetes_deployment_v1.gateway.spec[0].strategy[0].rolling_update[0].max_unavailable == "0"
    error_message = "An apply must end when the new list answers, and no request may be refused until then."
  }
}

run "answers_under_way_have_their_time" {
  command = plan

  variables {
    drain_seconds = 120
  }

  assert {
    condition     = kubernetes_deployment_v1.gateway.spec[0].template[0].spec[0].termination_grace_period_seconds > 120
    error_message = "The pod must not be killed before."
  }
}

run "a_tag_is_no_image" {
  command = plan

  variables {
    image = "ghcr.io/berriai/litellm-non_root:1.106.2"
  }

  expect_failures = [var.image]
}

run "an_address_is_no_secret" {
  command = plan

  variables {
    database = { secret = "postgresql://litellm:pass@db/litellm", cidrs = ["192.168.1.30/32"] }
  }

  expect_failures = [var.database]
}

run "every_address_is_no_network_of_a_database" {
  command = plan

  variables {
    database = { secret = "litellm-db", cidrs = ["0.0.0.0/0"] }
  }

  expect_failures = [var.database]
}

run "a_name_with_a_blank_is_no_namespace" {
  command = plan

  variables {
    allowed_namespaces = ["open webui"]
  }

  expect_failures = [var.allowed_namespaces]
}

run "a_drain_has_an_end" {
  command = plan

  variables {
    drain_seconds = -1
  }

  expect_failures = [var.drain_seconds]
}

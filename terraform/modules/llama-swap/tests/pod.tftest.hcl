# What the pod is.  What its scripts do is shown by tools/tests/unit/test_pod_scripts.py.

mock_provider "kubernetes" {}

variables {
  api_key_env        = "CORRAL_SWAP_KEY"
  caddy              = "{\"admin\": {}}"
  guard              = "{\"version\": 1}"
  door_image         = "caddy:2.11-alpine@sha256:3333333333333333333333333333333333333333333333333333333333333333"
  guard_image        = "python:3.13-slim@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  namespace          = "llama-cpp"
  allowed_namespaces = ["litellm", "open-webui"]
  claim              = "models-1a2b3c4d"
  config             = "models:\n  chat: {cmd: /etc/llama-swap/preflight.sh}\n"
  image              = "ghcr.io/mostlygeek/llama-swap:v252-cuda-b10775-non-root@sha256:1111111111111111111111111111111111111111111111111111111111111111"
  node               = "k8s-node1"
  holders            = "# shellcheck shell=sh\n"
  preflight          = "#!/bin/sh\n"
  runtime_class      = "nvidia"
  models = { chat = {
    argv      = ["llama-server", "-m", "$${STORE}/chat/model.gguf", "--mmproj", "$${STORE}/chat/mmproj.gguf", "--cache-ram", "1024"]
    files     = [{ size = 1048576 }]
    intent    = { cache_ram_mib = 1024, group = "main" }
    predicted = { host = { weights = 1048576, context = 0, compute = 1, projector = 0 } }
  } }
}

run "there_is_never_a_second_copy_on_the_card" {
  command = plan

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].replicas == "1" && kubernetes_deployment_v1.llama_swap.spec[0].strategy[0].type == "Recreate"
    error_message = "A second pod beside the first would take the card's memory twice."
  }

  assert {
    condition     = [for rule in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].affinity[0].pod_anti_affinity[0].required_during_scheduling_ignored_during_execution : "${rule.topology_key} ${jsonencode(rule.label_selector[0].match_labels)}"] == ["kubernetes.io/hostname ${jsonencode({ "app.kubernetes.io/name" = "llama-swap" })}"]
    error_message = "After a delete the next pod would start beside the one that still streams."
  }
}

run "without_a_node_it_still_runs_beside_no_other" {
  command = plan

  variables {
    node = null
  }

  assert {
    condition     = length(kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].affinity[0].node_affinity) == 0 && length(kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].affinity[0].pod_anti_affinity) == 1
    error_message = "Which node it runs on is another question than with whom."
  }
}

run "it_runs_on_the_card_that_was_reckoned_with" {
  command = plan

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].resources[0].limits["nvidia.com/gpu"] == "1" && kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].runtime_class_name == "nvidia"
    error_message = "The pod must ask for a card, and for the runtime that gives it."
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].affinity[0].node_affinity[0].required_during_scheduling_ignored_during_execution[0].node_selector_term[0].match_expressions[0].values == toset(["k8s-node1"])
    error_message = "The models were seated on this node's card."
  }
}

run "an_image_of_the_lock_is_not_noted" {
  command = plan

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.metadata[0].annotations == null
    error_message = "Only an image from elsewhere is corrected elsewhere."
  }
}

run "where_another_image_was_chosen_is_noted_beside_the_pod" {
  command = plan

  variables {
    image_from = "variable image"
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.metadata[0].annotations["corral/image-from"] == "variable image"
    error_message = "corral status must be able to name where the image is corrected."
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].metadata[0].annotations == null
    error_message = "In the pod's template the note would restart the server."
  }
}

run "a_cluster_may_need_no_runtime_class" {
  command = plan

  variables {
    runtime_class = null
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].runtime_class_name == null
    error_message = "A RuntimeClass that does not exist is refused by the cluster."
  }
}

run "a_change_of_the_configuration_is_a_new_pod" {
  command = plan

  variables {
    config = "models:\n  chat: {cmd: /etc/llama-swap/preflight.sh, ttl: 60}\n"
  }

  assert {
    condition = { for volume in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].volume : volume.name => volume.config_map[0].name if length(volume.config_map) > 0 } == {
      config = module.config.name, door = module.door.name, guard = module.guard.name
    }
    error_message = "llama-swap does not read its file again: the pod must mount what is named for its content."
  }

  assert {
    condition     = module.config.data["config.yaml"] == "models:\n  chat: {cmd: /etc/llama-swap/preflight.sh, ttl: 60}\n"
    error_message = "The configuration must be the one given, byte for byte."
  }
}

run "the_configuration_is_a_folder_with_programs" {
  command = plan

  assert {
    condition     = one([for mount in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].volume_mount : "${mount.mount_path}|${coalesce(mount.sub_path, "none")}" if mount.name == "config"]) == "/etc/llama-swap|none"
    error_message = "A sub path never sees a change."
  }

  assert {
    condition     = module.config.data["preflight.sh"] == "#!/bin/sh\n" && one([for volume in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].volume : volume.config_map[0].default_mode if volume.name == "config"]) == "0555"
    error_message = "The preflight must lie beside it and be executable."
  }

  assert {
    condition     = module.config.data["holders.sh"] == "# shellcheck shell=sh\n"
    error_message = "What finds the holders of the card must lie beside the preflight."
  }
}

run "the_store_is_only_read" {
  command = plan

  assert {
    condition     = one([for mount in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].volume_mount : mount.read_only if mount.mount_path == "/models"]) && one([for volume in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].volume : volume.persistent_volume_claim[0].read_only && volume.persistent_volume_claim[0].claim_name == "models-1a2b3c4d" if volume.name == "models"])
    error_message = "The server must not be able to write to its store."
  }
}

run "it_has_started_when_the_store_holds_every_model_and_llama_swap_answers" {
  command = plan

  assert {
    condition     = module.config.data["models.txt"] == "/models/chat/model.gguf\n/models/chat/mmproj.gguf\n"
    error_message = "Every file that a command names must be checked."
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].startup_probe[0].exec[0].command == tolist(["sh", "/etc/llama-swap/started.sh", "/etc/llama-swap/models.txt", "http://127.0.0.1:8082", "/run/keys/internal"])
    error_message = "The script must get the list."
  }
}

run "each_adapter_and_the_draft_are_files_of_their_own" {
  command = plan

  variables {
    models = { chat = {
      argv = [
        "llama-server", "-m", "$${STORE}/chat/model.gguf", "-md", "$${STORE}/chat/draft.gguf",
        "--lora-scaled", "$${STORE}/chat/adapter-1.gguf:1,$${STORE}/chat/adapter-2.gguf:-0.5",
      ]
      files     = [{ size = 1048576 }]
      intent    = { cache_ram_mib = 1024, group = "main" }
      predicted = { host = { weights = 1048576, context = 0, compute = 1, projector = 0 } }
    } }
  }

  assert {
    condition = module.config.data["models.txt"] == join("", [
      for file in ["model", "draft", "adapter-1", "adapter-2"] : "/models/chat/${file}.gguf\n"
    ])
    error_message = "The startup probe must search each file under its own name, without a scale."
  }
}

run "a_load_is_no_reason_to_kill" {
  command = plan

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].liveness_probe[0].exec[0].command[2] == "http://127.0.0.1:8082/health"
    error_message = "Alive must mean llama-swap's own process; /health knows of no model."
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].liveness_probe[0].period_seconds * kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].liveness_probe[0].failure_threshold >= 60
    error_message = "A machine that is busy reading a model may be slow for a while."
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].readiness_probe[0].exec[0].command[2] == "http://127.0.0.1:8082/running"
    error_message = "Ready must mean the part that starts and stops models."
  }
}

run "answers_under_way_are_not_cut" {
  command = plan

  variables {
    drain_seconds = 90
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].lifecycle[0].pre_stop[0].exec[0].command == tolist(["sh", "/etc/llama-swap/drain.sh", "90", "http://127.0.0.1:8082", "/run/keys/internal"])
    error_message = "The pod must wait before llama-swap gets SIGTERM."
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].termination_grace_period_seconds == 140
    error_message = "The grace must hold the wait, llama-swap's own 35 s, and the door's end."
  }
}

run "a_crash_leaves_no_core" {
  command = plan

  assert {
    condition     = strcontains(kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].command[2], "ulimit -c 0 &&") && strcontains(kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].command[2], " && exec llama-swap ")
    error_message = "A core is as large as the model; and llama-swap must be process 1, which receives the signal."
  }
}

run "the_pod_is_restricted" {
  command = plan

  assert {
    condition = alltrue([for pod in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].security_context : (
      pod.run_as_non_root && pod.run_as_user == "10001" && pod.run_as_group == "10001" && pod.fs_group == "10001"
      && pod.fs_group_change_policy == "OnRootMismatch" && pod.seccomp_profile[0].type == "RuntimeDefault"
    )])
    error_message = "The pod must run as the restricted user."
  }

  assert {
    condition = alltrue([for container in concat(kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].init_container, kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container) : (
      container.security_context[0].read_only_root_filesystem && container.security_context[0].run_as_non_root && !container.security_context[0].allow_privilege_escalation
      && container.security_context[0].capabilities[0].drop == tolist(["ALL"])
      && alltrue([for name in ["cpu", "memory", "ephemeral-storage"] : can(container.resources[0].limits[name]) && can(container.resources[0].requests[name])])
    )])
    error_message = "The container must be locked down, and have a limit on everything."
  }

  assert {
    condition     = !kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].automount_service_account_token && !kubernetes_service_account_v1.llama_swap.automount_service_account_token
    error_message = "The server needs no access to the Kubernetes API."
  }
}

run "only_the_named_may_ask_and_nothing_goes_out" {
  command = plan

  assert {
    condition     = [for rule in kubernetes_network_policy_v1.llama_swap.spec[0].ingress : [for from in rule.from : from.namespace_selector[0].match_labels["kubernetes.io/metadata.name"]]] == [["litellm", "open-webui"]]
    error_message = "The namespaces named must get in, and no other."
  }

  assert {
    condition     = [for rule in kubernetes_network_policy_v1.llama_swap.spec[0].ingress : [for port in rule.ports : "${port.port}/${port.protocol}"]] == [["8080/TCP"]]
    error_message = "Only the API's port may be open."
  }

  assert {
    condition     = contains(kubernetes_network_policy_v1.llama_swap.spec[0].policy_types, "Egress") && length(kubernetes_network_policy_v1.llama_swap.spec[0].egress) == 0
    error_message = "An image's address in a request must lead nowhere."
  }
}

run "the_exporter_of_the_card_gets_in_and_no_other_pod_of_its_namespace" {
  command = plan

  variables {
    allowed_namespaces = []
    exporter_namespace = "corral-exporter"
  }

  assert {
    condition = [for rule in kubernetes_network_policy_v1.llama_swap.spec[0].ingress : [
      rule.ports[0].port, rule.from[0].namespace_selector[0].match_labels["kubernetes.io/metadata.name"], rule.from[0].pod_selector[0].match_labels["app.kubernetes.io/name"]
    ]] == [["8080", "corral-exporter", "card-exporter"]]
    error_message = "Only the exporter's pods may connect, and only to the door."
  }
}

run "the_gateway_gets_in_and_no_other_pod_of_the_namespace" {
  command = plan

  variables {
    allowed_namespaces = []
    gateway            = true
  }

  assert {
    condition = [for rule in kubernetes_network_policy_v1.llama_swap.spec[0].ingress : [
      rule.ports[0].port, length(rule.from[0].namespace_selector), rule.from[0].pod_selector[0].match_labels["app.kubernetes.io/name"]
    ]] == [["8080", 0, "gateway"]]
    error_message = "Only the gateway's pods of this namespace may connect, and only to the door."
  }
}

run "an_empty_list_of_namespaces_permits_none" {
  command = plan

  variables {
    allowed_namespaces = []
  }

  assert {
    condition     = length(kubernetes_network_policy_v1.llama_swap.spec[0].ingress) == 0 && contains(kubernetes_network_policy_v1.llama_swap.spec[0].policy_types, "Ingress")
    error_message = "A rule without `from` would let everybody in."
  }
}

run "a_node_can_be_drained" {
  command = plan

  assert {
    condition     = kubernetes_pod_disruption_budget_v1.llama_swap.spec[0].max_unavailable == "1" && kubernetes_pod_disruption_budget_v1.llama_swap.spec[0].selector[0].match_labels == kubernetes_deployment_v1.llama_swap.spec[0].selector[0].match_labels
    error_message = "With one pod, a budget that allows none to go would block every drain."
  }
}

run "the_service_leads_to_the_pod" {
  command = plan

  assert {
    condition     = kubernetes_service_v1.llama_swap.spec[0].selector == tomap({ "app.kubernetes.io/name" = "llama-swap" }) && kubernetes_deployment_v1.llama_swap.spec[0].template[0].metadata[0].labels["app.kubernetes.io/name"] == "llama-swap"
    error_message = "The Service must choose this pod."
  }

  assert {
    condition     = [for port in kubernetes_service_v1.llama_swap.spec[0].port : "${port.port} ${port.target_port}"] == ["8080 8080"] && output.endpoint == "http://llama-swap.llama-cpp.svc.cluster.local:8080"
    error_message = "The endpoint must be the Service's."
  }
}

run "the_door_and_the_guard_live_as_long_as_llama_swap" {
  command = plan

  assert {
    condition     = [for one in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].init_container : "${one.name} ${one.restart_policy}"] == ["guard Always", "door Always"]
    error_message = "Only such containers start before llama-swap and end after it, so that no answer is cut."
  }
}

run "llama_swap_listens_for_the_guard_only" {
  command = plan

  assert {
    condition     = endswith(kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].command[2], " -listen 127.0.0.1:8082")
    error_message = "Another pod must not get past the door."
  }

  assert {
    condition     = length(kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].port) == 0 && [for one in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].init_container[1].port : "${one.name} ${one.container_port}"] == ["http 8080"]
    error_message = "The Service must lead to Caddy."
  }
}

run "each_container_has_the_keys_that_it_needs_and_no_other" {
  command = plan

  assert {
    condition = { for one in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].volume : one.name => [for item in one.secret[0].items : item.key] if length(one.secret) > 0 } == {
      guard-keys     = ["internal", "keys.json"]
      llama-swap-key = ["internal"]
    }
    error_message = "No container needs the operator's key."
  }

  assert {
    condition = { for one in concat(kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].init_container, kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container) : one.name => [for mount in one.volume_mount : mount.name if mount.mount_path == "/run/keys"] } == {
      guard      = ["guard-keys"]
      door       = []
      llama-swap = ["llama-swap-key"]
    }
    error_message = "Caddy needs no key; llama-swap needs only its own."
  }
}

run "the_key_of_llama_swap_is_in_no_command_line" {
  command = plan

  assert {
    condition     = strcontains(kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].command[2], " && CORRAL_SWAP_KEY=$(cat /run/keys/internal) && export CORRAL_SWAP_KEY && ")
    error_message = "The shell must read it from the Secret's file into the environment."
  }
}

run "a_change_of_who_may_do_what_is_a_new_pod" {
  command = plan

  variables {
    guard = "{\"version\": 1, \"clients\": {}}"
  }

  assert {
    condition     = module.door.data["guard.json"] == "{\"version\": 1, \"clients\": {}}" && one([for volume in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].volume : volume.config_map[0].name if volume.name == "door"]) == module.door.name
    error_message = "The guard reads its configuration once; only the keys are read again."
  }
}

run "the_guard_is_the_one_of_this_clone" {
  command = plan

  assert {
    condition     = contains(keys(module.guard.data), "__main__.py") && contains(keys(module.guard.data), "relay.py")
    error_message = "The guard's files must be mounted."
  }
}

run "a_copy_of_caddy_starts_where_no_capability_is_left" {
  command = plan

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].init_container[1].command[2] == "cp /usr/bin/caddy /tmp/caddy && exec /tmp/caddy run --config /etc/door/caddy.json"
    error_message = "The image's own program has a file capability: with all dropped, the kernel does not start it."
  }
}

run "only_the_addresses_of_the_image_hosts_are_open" {
  command = plan

  variables {
    image_hosts = { "images.home.arpa" = ["192.168.1.20/32"], "nas.home.arpa:8443" = ["192.168.1.30/32", "192.168.1.31/32"] }
  }

  assert {
    condition = [for rule in kubernetes_network_policy_v1.llama_swap.spec[0].egress : [
      [for to in rule.to : to.ip_block[0].cidr], [for port in rule.ports : "${port.port}/${port.protocol}"],
      ]] == [
      [[], ["53/UDP", "53/TCP"]],
      [["192.168.1.20/32"], ["80/TCP", "443/TCP"]],
      [["192.168.1.30/32", "192.168.1.31/32"], ["8443/TCP"]],
    ]
    error_message = "A redirect of a permitted host must lead nowhere else."
  }
}

run "nothing_is_exposed_unless_it_is_named" {
  command = plan

  assert {
    condition     = length(kubernetes_ingress_v1.llama_swap) == 0 && output.http_route == null && output.public_scheme == null
    error_message = "The door must be reached from within the cluster only."
  }

  assert {
    condition     = output.hosts == ["127.0.0.1", "localhost", "llama-swap", "llama-swap.llama-cpp", "llama-swap.llama-cpp.svc", "llama-swap.llama-cpp.svc.cluster.local"]
    error_message = "A forwarded port and the Service's names must be served."
  }
}

run "an_ingress_leads_to_the_door_and_its_controller_gets_in" {
  command = plan

  variables {
    expose = { hostname = "llm.home.arpa", from_namespace = "ingress-nginx", ingress_class = "nginx", tls_secret = "llm-tls" }
  }

  assert {
    condition     = kubernetes_ingress_v1.llama_swap[0].spec[0].rule[0].host == "llm.home.arpa" && kubernetes_ingress_v1.llama_swap[0].spec[0].rule[0].http[0].path[0].backend[0].service[0].port[0].number == 8080 && kubernetes_ingress_v1.llama_swap[0].spec[0].tls[0].secret_name == "llm-tls"
    error_message = "The Ingress must lead to the Service, with the certificate named."
  }

  assert {
    condition     = [for from in kubernetes_network_policy_v1.llama_swap.spec[0].ingress[0].from : from.namespace_selector[0].match_labels["kubernetes.io/metadata.name"]] == ["ingress-nginx", "litellm", "open-webui"]
    error_message = "The controller's pods must get in."
  }

  assert {
    condition     = contains(output.hosts, "llm.home.arpa") && output.public_scheme == "https" && output.http_route == null
    error_message = "The door must serve the name, under the scheme that browsers use."
  }
}

run "a_gateway_gets_a_route_to_apply" {
  command = plan

  variables {
    expose = { hostname = "llm.home.arpa", from_namespace = "envoy-gateway-system", gateway = { name = "home", namespace = "gateways" } }
  }

  assert {
    condition = yamldecode(output.http_route).spec == {
      parentRefs = [{ name = "home", namespace = "gateways" }]
      hostnames  = ["llm.home.arpa"]
      rules      = [{ backendRefs = [{ name = "llama-swap", port = 8080 }] }]
    }
    error_message = "The route must lead from the Gateway to the Service."
  }

  assert {
    condition     = length(kubernetes_ingress_v1.llama_swap) == 0 && contains(output.hosts, "llm.home.arpa") && output.public_scheme == "https"
    error_message = "A Gateway takes the place of an Ingress."
  }
}

run "without_conventions_it_is_as_it_was" {
  command = plan

  assert {
    condition     = length(kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].image_pull_secrets) == 0
    error_message = "None is named."
  }

  assert {
    condition     = [for one in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].toleration : [one.key, one.operator]] == [["nvidia.com/gpu", "Exists"]]
    error_message = "The usual taint must be tolerated, and no other."
  }

  assert {
    condition = alltrue([for metadata in [kubernetes_deployment_v1.llama_swap.metadata[0], kubernetes_deployment_v1.llama_swap.spec[0].template[0].metadata[0]] : (
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
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].image_pull_secrets[*].name == tolist(["registry", "mirror"])
    error_message = "Its images must be pulled with each of the Secrets."
  }

  assert {
    condition = [for one in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].toleration : [
      for value in [one.key, one.operator, one.value, one.effect, one.toleration_seconds] : value == null ? "" : value
    ]] == [["nvidia.com/mig-1g.5gb", "Exists", "", "", ""], ["dedicated", "Equal", "gpu", "NoExecute", "60"]]
    error_message = "The node may be reserved in several ways."
  }

  assert {
    condition = alltrue([for metadata in [kubernetes_deployment_v1.llama_swap.metadata[0], kubernetes_deployment_v1.llama_swap.spec[0].template[0].metadata[0]] : (
      metadata.labels.team == "home" && metadata.labels["app.kubernetes.io/part-of"] == "corral"
      && metadata.annotations == tomap({ "example.org/owner" = "ops" })
    )])
    error_message = "Object and pod must have the labels and annotations, and the module's own win."
  }
}

run "cores_and_times_are_those_of_the_operator" {
  command = plan

  variables {
    cpu             = { request = "1500m", limit = "8" }
    drain_seconds   = 300
    rollout_minutes = 40
  }

  assert {
    condition     = [for resources in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].resources : [resources.requests.cpu, resources.limits.cpu]] == [["1500m", "8"]]
    error_message = "The engine must have the cores that it was given."
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].progress_deadline_seconds == 2400 && kubernetes_deployment_v1.llama_swap.timeouts.create == "42m"
    error_message = "Kubernetes must name the reason before Terraform gives up."
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].termination_grace_period_seconds == 350 && contains(kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].lifecycle[0].pre_stop[0].exec[0].command, "300")
    error_message = "A longer drain needs a longer grace period."
  }
}

run "cores_and_times_are_the_usual_ones_otherwise" {
  command = plan

  assert {
    condition     = [for resources in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].resources : [resources.requests.cpu, resources.limits.cpu]] == [["500m", "4"]]
    error_message = "One core is busy while a model answers, all while an image is encoded."
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].progress_deadline_seconds == 900 && kubernetes_deployment_v1.llama_swap.timeouts.update == "17m" && kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].termination_grace_period_seconds == 110
    error_message = "An option that is not set must change no object."
  }
}

run "it_asks_for_the_card_by_the_name_of_the_cluster" {
  command = plan

  variables {
    conventions = { gpu_resource = "amd.com/gpu" }
  }

  assert {
    condition = [for resources in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].resources : [
      [for name, amount in resources.limits : "${name}=${amount}" if strcontains(name, "/")],
      [for name, amount in resources.requests : "${name}=${amount}" if strcontains(name, "/")],
    ]] == [[["amd.com/gpu=1"], ["amd.com/gpu=1"]]]
    error_message = "Under another name there is no card to get, and two would be two cards."
  }
}

run "every_object_has_the_labels_and_annotations_of_the_cluster" {
  command = plan

  variables {
    conventions = { labels = { team = "home" }, annotations = { "example.org/owner" = "ops" } }
    image_from  = "variable image"
    expose = {
      hostname       = "llm.home.arpa"
      from_namespace = "ingress-nginx"
      ingress_class  = "nginx"
      annotations    = { "nginx.ingress.kubernetes.io/proxy-body-size" = "64m" }
    }
  }

  assert {
    condition = alltrue([for metadata in [
      kubernetes_ingress_v1.llama_swap[0].metadata[0], kubernetes_network_policy_v1.llama_swap.metadata[0],
      kubernetes_pod_disruption_budget_v1.llama_swap.metadata[0], kubernetes_service_v1.llama_swap.metadata[0],
      kubernetes_service_account_v1.llama_swap.metadata[0], kubernetes_deployment_v1.llama_swap.metadata[0],
    ] : metadata.labels.team == "home" && metadata.annotations["example.org/owner"] == "ops"])
    error_message = "All objects must be found by them."
  }

  assert {
    condition = kubernetes_deployment_v1.llama_swap.metadata[0].annotations["corral/image-from"] == "variable image" && (
      kubernetes_ingress_v1.llama_swap[0].metadata[0].annotations["nginx.ingress.kubernetes.io/proxy-body-size"] == "64m"
    )
    error_message = "The module's own, and those of the Ingress, must stay."
  }
}

run "it_has_the_priority_that_it_was_given" {
  command = plan

  variables {
    priority_class = "models"
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].priority_class_name == "models"
    error_message = "The pod must name its class."
  }
}

run "of_several_cards_each_pod_has_its_own_label_and_the_service_means_all" {
  command = plan

  variables {
    card = "p40"
  }

  assert {
    condition = kubernetes_deployment_v1.llama_swap.spec[0].selector[0].match_labels == tomap({ "app.kubernetes.io/name" = "llama-swap", "corral/card" = "p40" }) && (
      kubernetes_deployment_v1.llama_swap.spec[0].template[0].metadata[0].labels["corral/card"] == "p40"
    )
    error_message = "The Deployment must own the pod of its card alone."
  }

  assert {
    condition     = kubernetes_pod_disruption_budget_v1.llama_swap.spec[0].selector[0].match_labels["corral/card"] == "p40"
    error_message = "A pod with two budgets cannot be evicted."
  }

  assert {
    condition = kubernetes_service_v1.llama_swap.spec[0].selector == tomap({ "app.kubernetes.io/name" = "llama-swap" }) && (
      kubernetes_service_v1.own[0].metadata[0].name == "llama-swap-first" && kubernetes_service_v1.own[0].spec[0].selector["corral/card"] == "p40"
    )
    error_message = "The Service must mean the pods of all cards, and the second one the first card's."
  }
}

run "the_pod_of_a_further_card_has_a_service_that_means_it_alone" {
  command = plan

  variables {
    card = "t4"
    name = "llama-swap-t4"
  }

  assert {
    condition = kubernetes_deployment_v1.llama_swap.metadata[0].name == "llama-swap-t4" && length(kubernetes_service_v1.own) == 0 && (
      kubernetes_service_v1.llama_swap.metadata[0].name == "llama-swap-t4" && kubernetes_service_v1.llama_swap.spec[0].selector["corral/card"] == "t4"
    )
    error_message = "It must be reached by the name of its card."
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].name == "llama-swap"
    error_message = "Programs find the container by its name."
  }
}

run "the_pods_of_several_cards_reach_each_others_door_alone" {
  command = plan

  variables {
    card               = "p40"
    allowed_namespaces = []
  }

  assert {
    condition = [for rule in kubernetes_network_policy_v1.llama_swap.spec[0].ingress : "${join(",", rule.ports[*].port)} ${jsonencode([
      for from in rule.from : [from.pod_selector[0].match_labels, length(from.namespace_selector)]
    ])}"] == ["8080 ${jsonencode([[{ "app.kubernetes.io/name" = "llama-swap" }, 0]])}"]
    error_message = "The pods of this namespace's llama-swap must get in, at the door, and no other."
  }

  assert {
    condition = [for rule in kubernetes_network_policy_v1.llama_swap.spec[0].egress : "${join(",", rule.ports[*].port)} ${jsonencode([for to in rule.to : to.pod_selector[0].match_labels])}"] == [
      "8080 ${jsonencode([{ "app.kubernetes.io/name" = "llama-swap" }])}", "53,53 []",
    ]
    error_message = "Only the doors of the others, and the resolver that knows their names, may be reached."
  }
}

run "a_name_of_another_app_is_refused" {
  command = plan

  variables {
    name = "caddy"
  }

  expect_failures = [var.name]
}

run "where_requests_may_name_adapters_the_guard_alone_reads_the_chosen_versions" {
  command = plan

  variables {
    has_adapters = true
  }

  assert {
    condition = [
      for volume in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].volume :
      [volume.config_map[0].name, volume.config_map[0].optional] if volume.name == "adapters"
    ] == [["corral-adapters", true]]
    error_message = "The pod starts without the ConfigMap, which exists from the first swap on."
  }

  assert {
    condition = {
      for one in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].init_container : one.name => [
        for mount in one.volume_mount : mount.mount_path if mount.name == "adapters"
      ]
    } == { guard = ["/run/adapters"], door = [] } && output.chosen_versions == "/run/adapters/versions.json"
    error_message = "The guard alone reads it."
  }
}

run "adapters_are_among_the_files_that_must_be_there" {
  command = plan

  variables {
    models = { chat = {
      argv      = ["llama-server", "-m", "$${STORE}/chat/model.gguf", "--lora-scaled", "$${STORE}/chat/adapter-1.gguf:0.5,$${STORE}/chat/adapter-2.gguf:0"]
      files     = [{ size = 1024 }]
      intent    = { cache_ram_mib = 0, group = "main" }
      predicted = {}
    } }
  }

  assert {
    condition     = module.config.data["models.txt"] == "/models/chat/model.gguf\n/models/chat/adapter-1.gguf\n/models/chat/adapter-2.gguf\n"
    error_message = "Each adapter is a file of its own, without its scale."
  }
}

# What the pod of a model on vLLM is, and who reaches it.

mock_provider "kubernetes" {}

variables {
  model     = "qwen3-8b"
  name      = "vllm-qwen3-8b"
  namespace = "llama-cpp"
  claim     = "models-1a2b3c4d"
  image     = "vllm/vllm-openai:v0.32.0@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  node      = "k8s-node1"
  files     = [{ size = 4294967296 }, { size = 1048576 }]
  argv = [
    "vllm", "serve", "$${STORE}/qwen3-8b", "--served-model-name", "qwen3-8b", "--gpu-memory-utilization", "0.4321",
    "--shutdown-timeout", "30", "--host", "127.0.0.1", "--port", "$${PORT}",
  ]
}

run "the_words_of_the_lock_run_with_the_places_of_the_pod" {
  command = plan

  assert {
    condition = slice(kubernetes_deployment_v1.vllm.spec[0].template[0].spec[0].container[0].command, 4, 17) == tolist([
      "vllm", "serve", "/models/qwen3-8b", "--served-model-name", "qwen3-8b", "--gpu-memory-utilization", "0.4321",
      "--shutdown-timeout", "30", "--host", "0.0.0.0", "--port", "8000",
    ])
    error_message = "What runs must be what was seated."
  }
}

run "the_key_is_read_from_the_secret_and_stands_in_no_object" {
  command = plan

  assert {
    condition     = strcontains(kubernetes_deployment_v1.vllm.spec[0].template[0].spec[0].container[0].command[2], "VLLM_API_KEY=\"$(cat /run/corral/internal)\"")
    error_message = "vLLM must take only requests with the key."
  }

  assert {
    condition     = [for one in kubernetes_deployment_v1.vllm.spec[0].template[0].spec[0].volume : [for item in one.secret[0].items : item.key] if one.name == "key"] == [["internal"]]
    error_message = "Of the Secret it must get llama-swap's key alone."
  }
}

run "it_fetches_nothing_and_reports_nothing" {
  command = plan

  assert {
    condition = alltrue([for name in ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"] :
      { for one in kubernetes_deployment_v1.vllm.spec[0].template[0].spec[0].container[0].env : one.name => one.value }[name] == "1"
    ])
    error_message = "It must be offline and silent."
  }

  assert {
    condition     = kubernetes_network_policy_v1.vllm.spec[0].policy_types == tolist(["Ingress", "Egress"]) && length(kubernetes_network_policy_v1.vllm.spec[0].egress) == 0
    error_message = "The network must let nothing out."
  }
}

run "llama_swap_alone_reaches_it" {
  command = plan

  assert {
    condition     = kubernetes_network_policy_v1.vllm.spec[0].ingress[0].from[0].pod_selector[0].match_labels == tomap({ "app.kubernetes.io/name" = "llama-swap" })
    error_message = "A client that goes around the door has no key of its own and no limit."
  }

  assert {
    condition     = kubernetes_network_policy_v1.to_vllm.spec[0].egress[0].to[0].pod_selector[0].match_labels["app.kubernetes.io/instance"] == "vllm-qwen3-8b"
    error_message = "llama-swap, which may go nowhere else, must get here."
  }

  assert {
    condition     = kubernetes_service_v1.vllm.metadata[0].name == "vllm-qwen3-8b" && kubernetes_service_v1.vllm.spec[0].port[0].port == 8000
    error_message = "The Service must have the name and the port of the address."
  }
}

run "its_pod_names_the_model" {
  command = plan

  assert {
    condition     = kubernetes_deployment_v1.vllm.spec[0].template[0].metadata[0].labels["corral/model"] == "qwen3-8b"
    error_message = "Without the label the exporter of the card counts a stranger."
  }
}

run "it_is_restricted" {
  command = plan

  assert {
    condition = alltrue([for one in kubernetes_deployment_v1.vllm.spec[0].template[0].spec[0].container :
      one.security_context[0].read_only_root_filesystem && !one.security_context[0].allow_privilege_escalation
      && one.security_context[0].run_as_non_root && one.security_context[0].capabilities[0].drop == tolist(["ALL"])
    ])
    error_message = "It must have no capability and no root."
  }

  assert {
    condition = (
      kubernetes_deployment_v1.vllm.spec[0].template[0].spec[0].automount_service_account_token == false &&
      kubernetes_deployment_v1.vllm.spec[0].template[0].spec[0].security_context[0].seccomp_profile[0].type == "RuntimeDefault"
    )
    error_message = "It must pass Pod Security restricted, and ask the API server for nothing."
  }
}

run "a_load_may_take_its_time_and_a_drain_too" {
  command = plan

  variables {
    load_seconds = 1200
  }

  assert {
    condition = (
      kubernetes_deployment_v1.vllm.spec[0].template[0].spec[0].container[0].startup_probe[0].failure_threshold
      * kubernetes_deployment_v1.vllm.spec[0].template[0].spec[0].container[0].startup_probe[0].period_seconds == 1200
    )
    error_message = "A pod that loads must not be started again before the time of a load is over."
  }

  assert {
    condition     = kubernetes_deployment_v1.vllm.spec[0].template[0].spec[0].termination_grace_period_seconds == 60
    error_message = "The grace period must be longer than the 30 s that vLLM gives answers under way."
  }

  assert {
    condition     = kubernetes_deployment_v1.vllm.spec[0].strategy[0].type == "Recreate"
    error_message = "Two copies would take the card's memory twice."
  }
}

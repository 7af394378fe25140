# What the Job is.

mock_provider "kubernetes" {}

variables {
  namespace = "llama-cpp"
  claim     = "models-1a2b3c4d"
  image     = "python:3.13-slim@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  node      = "k8s-node1"
  models = {
    chat = {
      repo     = "example/chat-GGUF"
      revision = "0123456789abcdef0123456789abcdef01234567"
      licence  = "apache-2.0"
      argv     = ["llama-server", "-c", "4096"]
      files    = [{ path = "chat.gguf", role = "model", size = 5000000000, sha256 = "bb" }]
    }
  }
}

run "the_agent_runs_from_its_bare_files" {
  command = plan

  assert {
    condition     = keys(module.agent.data) == sort(fileset("../../../tools/corral/agent", "[^.]*.py")) && contains(keys(module.agent.data), "__main__.py")
    error_message = "The agent's files must be there, all of them and no other."
  }

  assert {
    condition     = kubernetes_job_v1.download_models.spec[0].template[0].spec[0].init_container[0].command == tolist(["python3", "-m", "agent", "fetch", "--store", "/models", "--lock", "/opt/corral/lock/lock.json", "--termination-log", "/dev/termination-log"])
    error_message = "The first container must fetch what the lock names."
  }

  assert {
    condition     = kubernetes_job_v1.download_models.spec[0].template[0].spec[0].init_container[0].working_dir == "/opt/corral" && { for mount in kubernetes_job_v1.download_models.spec[0].template[0].spec[0].init_container[0].volume_mount : mount.name => mount.mount_path } == { agent = "/opt/corral/agent", lock = "/opt/corral/lock", models = "/models" }
    error_message = "python3 -m agent must find the package in its working folder."
  }
}

run "the_lock_holds_only_what_the_agent_reads" {
  command = plan

  assert {
    condition = jsondecode(module.lock.data["lock.json"]) == {
      version = 2
      models = { chat = {
        repo     = "example/chat-GGUF"
        revision = "0123456789abcdef0123456789abcdef01234567"
        files    = [{ path = "chat.gguf", role = "model", size = 5000000000, sha256 = "bb" }]
      } }
    }
    error_message = "Arguments and measurements must not be part of it, or a change of them would be a new Job."
  }
}

run "a_file_of_another_repository_keeps_its_own_commit" {
  command = plan

  variables {
    models = { chat = {
      repo     = "example/chat-GGUF"
      revision = "0123456789abcdef0123456789abcdef01234567"
      files = [
        { path = "chat.gguf", role = "model", size = 5000000000, sha256 = "bb" },
        {
          path     = "small.gguf", role = "draft", size = 500, sha256 = "cc", repo = "example/small-GGUF",
          revision = "abcdef0123456789abcdef0123456789abcdef01"
        },
      ]
    } }
  }

  assert {
    condition = jsondecode(module.lock.data["lock.json"]).models.chat.files == [
      { path = "chat.gguf", role = "model", size = 5000000000, sha256 = "bb" },
      {
        path     = "small.gguf", role = "draft", size = 500, sha256 = "cc", repo = "example/small-GGUF",
        revision = "abcdef0123456789abcdef0123456789abcdef01"
      },
    ]
    error_message = "The agent must get the repository of a file where it is not the model's, and no such key elsewhere."
  }
}

run "the_models_are_read_into_memory_where_they_are_served" {
  command = plan

  assert {
    condition     = kubernetes_job_v1.download_models.spec[0].template[0].spec[0].affinity[0].node_affinity[0].required_during_scheduling_ignored_during_execution[0].node_selector_term[0].match_expressions[0].values == toset(["k8s-node1"])
    error_message = "The page cache of another machine is of no use."
  }

  assert {
    condition     = slice(kubernetes_job_v1.download_models.spec[0].template[0].spec[0].container[0].command, 3, 11) == tolist(["warm", "--store", "/models", "--lock", "/opt/corral/lock/lock.json", "--termination-log", "/dev/termination-log", "chat"])
    error_message = "The second container must warm every model."
  }

  assert {
    condition     = kubernetes_job_v1.download_models.spec[0].template[0].spec[0].container[0].resources[0].limits.memory == "4897Mi"
    error_message = "Page cache counts against the one who reads: the limit must hold all files (4769 MiB) and Python (128)."
  }
}

run "the_download_needs_little_memory" {
  command = plan

  assert {
    condition     = kubernetes_job_v1.download_models.spec[0].template[0].spec[0].init_container[0].resources[0].limits.memory == "256Mi"
    error_message = "A download must not take memory by the size of its files."
  }
}

run "a_disruption_is_no_failed_try_and_wrong_content_is_no_reason_for_another" {
  command = plan

  assert {
    condition = [
      for rule in kubernetes_job_v1.download_models.spec[0].pod_failure_policy[0].rule :
      join(" ", flatten([rule.action, rule.on_pod_condition[*].type, rule.on_exit_codes[*].container_name, rule.on_exit_codes[*].values]))
    ] == ["Ignore DisruptionTarget", "FailJob fetch 1 2"]
    error_message = "A drained node must not count; the agent's own refusals must end the Job immediately; the rest (OOM, no network) is tried again."
  }

  assert {
    condition     = kubernetes_job_v1.download_models.spec[0].template[0].spec[0].restart_policy == "Never" && kubernetes_job_v1.download_models.spec[0].backoff_limit == 4
    error_message = "The failure policy needs restart policy Never, and tries must be counted."
  }

  assert {
    condition     = kubernetes_job_v1.download_models.spec[0].ttl_seconds_after_finished == null
    error_message = "A Job that removes itself would be made anew by every apply."
  }
}

run "terraform_waits_a_stated_time" {
  command = plan

  variables {
    timeout_minutes = 45
  }

  assert {
    condition     = kubernetes_job_v1.download_models.wait_for_completion && kubernetes_job_v1.download_models.timeouts.create == "47m" && kubernetes_job_v1.download_models.spec[0].active_deadline_seconds == 2700
    error_message = "The Job must give up before Terraform does: then the error is the Job's."
  }
}

run "without_a_token_nothing_of_it_is_there" {
  command = plan

  assert {
    condition     = [for volume in kubernetes_job_v1.download_models.spec[0].template[0].spec[0].volume : volume.name] == ["agent", "lock", "models"]
    error_message = "A pod waits for ever for a Secret that does not exist."
  }
}

run "a_token_is_a_file" {
  command = plan

  variables {
    hf_token_secret = "hf"
  }

  assert {
    condition     = { for env in kubernetes_job_v1.download_models.spec[0].template[0].spec[0].init_container[0].env : env.name => env.value }["HF_TOKEN_PATH"] == "/run/secrets/corral/token"
    error_message = "The agent must get the path of the token."
  }

  assert {
    condition     = one([for volume in kubernetes_job_v1.download_models.spec[0].template[0].spec[0].volume : "${volume.secret[0].secret_name}/${volume.secret[0].items[0].key} ${volume.secret[0].default_mode}" if volume.name == "token"]) == "hf/token 0440"
    error_message = "The key token must be mounted, for this user alone."
  }

  assert {
    condition     = !contains([for mount in kubernetes_job_v1.download_models.spec[0].template[0].spec[0].container[0].volume_mount : mount.name], "token")
    error_message = "A container that only reads models needs no token."
  }
}

run "the_hub_can_be_another_one" {
  command = plan

  variables {
    hub       = "http://hub.home.arpa:8000"
    hub_cidrs = ["192.168.1.20/32"]
  }

  assert {
    condition     = { for env in kubernetes_job_v1.download_models.spec[0].template[0].spec[0].init_container[0].env : env.name => env.value if contains(["HF_ENDPOINT", "CORRAL_ALLOW_HTTP"], env.name) } == { HF_ENDPOINT = "http://hub.home.arpa:8000", CORRAL_ALLOW_HTTP = "hub.home.arpa" }
    error_message = "The hub must be named, and plain http allowed to this host and no other."
  }
}

run "https_needs_no_permission" {
  command = plan

  variables {
    hub       = "https://hub.home.arpa"
    hub_cidrs = ["192.168.1.20/32"]
  }

  assert {
    condition     = !contains([for env in kubernetes_job_v1.download_models.spec[0].template[0].spec[0].init_container[0].env : env.name], "CORRAL_ALLOW_HTTP")
    error_message = "Nothing may be allowed that is not asked for."
  }
}

run "the_pod_is_restricted" {
  command = plan

  assert {
    condition = alltrue([for pod in kubernetes_job_v1.download_models.spec[0].template[0].spec[0].security_context : (
      pod.run_as_non_root && pod.run_as_user == "10001" && pod.run_as_group == "10001" && pod.fs_group == "10001"
      && pod.fs_group_change_policy == "OnRootMismatch" && pod.seccomp_profile[0].type == "RuntimeDefault"
    )])
    error_message = "The pod must run as the user that the store belongs to."
  }

  assert {
    condition = alltrue([
      for container in concat(kubernetes_job_v1.download_models.spec[0].template[0].spec[0].init_container, kubernetes_job_v1.download_models.spec[0].template[0].spec[0].container) :
      container.security_context[0].read_only_root_filesystem && container.security_context[0].run_as_non_root && !container.security_context[0].allow_privilege_escalation
      && container.security_context[0].capabilities[0].drop == tolist(["ALL"])
      && alltrue([for name in ["cpu", "memory", "ephemeral-storage"] : can(container.resources[0].limits[name]) && can(container.resources[0].requests[name])])
    ])
    error_message = "Each container must be locked down, and have a limit on everything."
  }

  assert {
    condition     = !kubernetes_job_v1.download_models.spec[0].template[0].spec[0].automount_service_account_token && !kubernetes_service_account_v1.download_models.automount_service_account_token
    error_message = "The Job needs no access to the Kubernetes API."
  }
}

run "out_go_names_and_https_and_nothing_comes_in" {
  command = plan

  assert {
    condition     = [for rule in kubernetes_network_policy_v1.download_models.spec[0].egress : [for port in rule.ports : "${port.port}/${port.protocol}"]] == [["53/UDP", "53/TCP"], ["443/TCP"]]
    error_message = "Only DNS and https may go out."
  }

  assert {
    condition     = length(kubernetes_network_policy_v1.download_models.spec[0].ingress) == 0 && contains(kubernetes_network_policy_v1.download_models.spec[0].policy_types, "Ingress")
    error_message = "The policy must permit no connection to a download."
  }
}

run "https_goes_to_public_addresses_alone" {
  command = plan

  assert {
    condition = { for to in kubernetes_network_policy_v1.download_models.spec[0].egress[1].to : to.ip_block[0].cidr => length(setsubtract(
      to.ip_block[0].cidr == "::/0" ? ["fc00::/7", "fe80::/10", "ff00::/8", "::/96"] : ["10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "224.0.0.0/3"],
      to.ip_block[0].except,
    )) } == { "0.0.0.0/0" = 0, "::/0" = 0 }
    error_message = "A redirect must not lead to a private, link-local, loopback or multicast address, of which one is a cloud's metadata."
  }
}

run "the_port_of_a_public_hub_is_open_to_public_addresses" {
  command = plan

  variables {
    hub = "http://mirror.example.org:8000/mirror"
  }

  assert {
    condition     = [for port in kubernetes_network_policy_v1.download_models.spec[0].egress[1].ports : port.port] == ["443", "8000"]
    error_message = "The hub's own port must be open."
  }

  assert {
    condition     = length(kubernetes_network_policy_v1.download_models.spec[0].egress) == 2 && contains(one([for to in kubernetes_network_policy_v1.download_models.spec[0].egress[1].to : to.ip_block[0].except if to.ip_block[0].cidr == "0.0.0.0/0"]), "169.254.0.0/16")
    error_message = "A public hub must open no private address."
  }
}

run "port_80_never_opens_link_local_addresses" {
  command = plan

  variables {
    hub       = "http://192.168.1.20"
    hub_cidrs = ["192.168.1.0/24"]
  }

  assert {
    condition     = [for rule in kubernetes_network_policy_v1.download_models.spec[0].egress : "${join(" ", rule.ports[*].port)} to ${join(" ", rule.to[*].ip_block[0].cidr)}"] == ["53 53 to ", "443 to 0.0.0.0/0 ::/0", "80 to 192.168.1.0/24"]
    error_message = "The hub's port must be open in its own networks alone."
  }
}

run "a_private_hub_is_reached_at_its_addresses_and_port" {
  command = plan

  variables {
    hub       = "https://hub.home.arpa:8443/mirror"
    hub_cidrs = ["fd00::20/128", "192.168.1.20/32", "192.168.1.20/32"]
  }

  assert {
    condition     = [for rule in kubernetes_network_policy_v1.download_models.spec[0].egress : "${join(" ", rule.ports[*].port)} to ${join(" ", rule.to[*].ip_block[0].cidr)}"] == ["53 53 to ", "443 to 0.0.0.0/0 ::/0", "8443 to 192.168.1.20/32 fd00::20/128"]
    error_message = "The hub's port must be open in its own networks, and in no other private one."
  }
}

run "a_private_address_is_covered_by_a_larger_network" {
  command = plan

  variables {
    hub       = "http://[fd00::20]:8000"
    hub_cidrs = ["192.168.0.0/16", "fd00::/64"]
  }
}

run "a_mirror_of_the_public_hub_needs_no_name_of_its_own" {
  command = plan

  variables {
    hub_cidrs = ["10.1.2.3/32"]
  }

  assert {
    condition     = kubernetes_network_policy_v1.download_models.spec[0].egress[2].ports[0].port == "443" && kubernetes_network_policy_v1.download_models.spec[0].egress[2].to[0].ip_block[0].cidr == "10.1.2.3/32"
    error_message = "Where the network resolves huggingface.co to a mirror, its address must be open."
  }
}

run "without_conventions_it_is_as_it_was" {
  command = plan

  assert {
    condition     = length(kubernetes_job_v1.download_models.spec[0].template[0].spec[0].image_pull_secrets) == 0
    error_message = "None is named."
  }

  assert {
    condition     = [for one in kubernetes_job_v1.download_models.spec[0].template[0].spec[0].toleration : [one.key, one.operator]] == [["nvidia.com/gpu", "Exists"]]
    error_message = "The usual taint must be tolerated, and no other."
  }

  assert {
    condition = alltrue([for metadata in [kubernetes_job_v1.download_models.metadata[0], kubernetes_job_v1.download_models.spec[0].template[0].metadata[0]] : (
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
    condition     = kubernetes_job_v1.download_models.spec[0].template[0].spec[0].image_pull_secrets[*].name == tolist(["registry", "mirror"])
    error_message = "Its images must be pulled with each of the Secrets."
  }

  assert {
    condition = [for one in kubernetes_job_v1.download_models.spec[0].template[0].spec[0].toleration : [
      for value in [one.key, one.operator, one.value, one.effect, one.toleration_seconds] : value == null ? "" : value
    ]] == [["nvidia.com/mig-1g.5gb", "Exists", "", "", ""], ["dedicated", "Equal", "gpu", "NoExecute", "60"]]
    error_message = "The node may be reserved in several ways."
  }

  assert {
    condition = alltrue([for metadata in [kubernetes_job_v1.download_models.metadata[0], kubernetes_job_v1.download_models.spec[0].template[0].metadata[0]] : (
      metadata.labels.team == "home" && metadata.labels["app.kubernetes.io/part-of"] == "corral"
      && metadata.annotations == tomap({ "example.org/owner" = "ops" })
    )])
    error_message = "Object and pod must have the labels and annotations, and the module's own win."
  }
}

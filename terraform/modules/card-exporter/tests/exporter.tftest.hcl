# What the exporter's pod is, and what it is given.

mock_provider "kubernetes" {}

variables {
  door    = { port = 8080, host = "llama-swap.llama-cpp.svc" }
  engines = { namespace = "llama-cpp", selector = "app.kubernetes.io/name=llama-swap" }
  image   = "python:3.13-slim@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  seal    = "0000000000000000000000000000000000000000000000000000000000000000"
  nodes   = { t4 = "k8s-node1" }
  promises = {
    t4     = { vram_bytes = 16106127360, reserve_bytes = 536870912, yield = null, tenants = {}, models = {} }
    laptop = { vram_bytes = 4294967296, reserve_bytes = 536870912, yield = null, tenants = {}, models = {} }
  }
}

run "it_has_host_pids_and_nothing_else" {
  command = plan

  assert {
    condition     = kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].spec[0].host_pid && !coalesce(kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].spec[0].host_network, false)
    error_message = "The driver's pids are those of the node."
  }

  assert {
    condition = alltrue([for container in kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].spec[0].container :
      container.security_context[0].read_only_root_filesystem && !container.security_context[0].allow_privilege_escalation
      && container.security_context[0].run_as_non_root && container.security_context[0].capabilities[0].drop == tolist(["ALL"])
      && !contains(keys(container.resources[0].limits), "nvidia.com/gpu")
    ])
    error_message = "It must have no capability, no root and no GPU."
  }

  assert {
    condition     = kubernetes_cluster_role_v1.card_exporter.rule[0].verbs == tolist(["get", "list"]) && kubernetes_cluster_role_v1.card_exporter.rule[0].resources == tolist(["pods"]) && length(kubernetes_cluster_role_v1.card_exporter.rule) == 1
    error_message = "It may list pods, and nothing else."
  }

  assert {
    condition     = kubernetes_namespace_v1.card_exporter.metadata[0].labels["pod-security.kubernetes.io/enforce"] == "privileged" && kubernetes_namespace_v1.card_exporter.metadata[0].name == "corral-exporter"
    error_message = "Only a namespace of its own may be without Pod Security."
  }
}

run "it_runs_from_its_bare_files_and_one_wheel" {
  command = plan

  assert {
    condition     = keys(module.program.data) == sort(fileset("../../../tools/corral/exporter", "{[^.]*.py,page.html}")) && contains(keys(module.program.data), "__main__.py")
    error_message = "The exporter's files must be there, all of them and no other."
  }

  assert {
    condition     = keys(module.program.binary_data) == tolist(["prometheus_client-0.26.0-py3-none-any.whl"])
    error_message = "The library must be there."
  }

  assert {
    condition     = sum([for content in concat(values(module.program.data), values(module.program.binary_data)) : length(content)]) < 900000
    error_message = "A ConfigMap holds 1 MiB."
  }
}

run "it_mounts_what_is_named_for_its_content_and_has_no_other_mark" {
  command = plan

  assert {
    condition = { for volume in kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].spec[0].volume : volume.name => volume.config_map[0].name if length(volume.config_map) > 0 } == {
      program = module.program.name, config = module.config.name
    }
    error_message = "Both are read once: the pod must mount what is named for its content."
  }

  assert {
    condition     = kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].metadata[0].annotations == null
    error_message = "Nothing else must replace the pod."
  }
}

run "each_node_is_given_its_own_cards" {
  command = plan

  variables {
    nodes    = { t4 = "k8s-node1", p40 = "k8s-node2" }
    promises = { for name in ["p40", "t4"] : name => { vram_bytes = 1, reserve_bytes = 1, yield = null, tenants = {}, models = {} } }
  }

  assert {
    condition = { for file, text in module.config.data : file => keys(jsondecode(text).cards) } == {
      "k8s-node1.json" = ["t4"], "k8s-node2.json" = ["p40"]
    }
    error_message = "A card of another node is none that this node's driver lists."
  }

  assert {
    condition     = kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].spec[0].container[0].command[3] == "/opt/corral/config/$(NODE_NAME).json"
    error_message = "Each pod must read the file of its node."
  }
}

run "it_is_given_the_promises_of_cards_with_a_node" {
  command = plan

  assert {
    condition     = jsonencode(jsondecode(module.config.data["k8s-node1.json"]).cards) == jsonencode({ t4 = var.promises.t4 })
    error_message = "It must have the promises of these cards, as they are, and of no other."
  }

  assert {
    condition     = kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].spec[0].affinity[0].node_affinity[0].required_during_scheduling_ignored_during_execution[0].node_selector_term[0].match_expressions[0].values == toset(["k8s-node1"])
    error_message = "One pod must run on the node of each card, and none elsewhere."
  }
}

run "it_reads_llama_swap_through_the_door_with_a_key_that_terraform_does_not_have" {
  command = plan

  assert {
    condition = jsondecode(module.config.data["k8s-node1.json"]).door == {
      port = 8080, host = "llama-swap.llama-cpp.svc", key_file = "/opt/corral/keys/key"
    }
    error_message = "The door's port and Host, and the file of the key, must be there."
  }

  assert {
    condition = [for volume in kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].spec[0].volume :
      [volume.secret[0].secret_name, volume.secret[0].optional] if volume.name == "keys"
    ] == [["corral-monitor", true]]
    error_message = "It must start without the key, which comes after the first apply."
  }

  assert {
    condition = anytrue([for rule in kubernetes_network_policy_v1.card_exporter.spec[0].egress :
      [rule.ports[0].port, rule.to[0].namespace_selector[0].match_labels["kubernetes.io/metadata.name"], rule.to[0].pod_selector[0].match_labels["app.kubernetes.io/name"]]
      == ["8080", "llama-cpp", "llama-swap"] if length(rule.to) > 0
    ])
    error_message = "It must reach the door, and no other port of that namespace."
  }
}

run "its_page_needs_a_key_whose_hash_terraform_does_not_have" {
  command = plan

  assert {
    condition     = jsondecode(module.config.data["k8s-node1.json"]).operator_keys == "/opt/corral/keys/keys.json"
    error_message = "The file must be the one that corral writes into the Secret."
  }
}

run "only_the_named_namespaces_read_it" {
  command = plan

  variables {
    scraped_from = ["monitoring"]
  }

  assert {
    condition     = flatten([for rule in kubernetes_network_policy_v1.card_exporter.spec[0].ingress : [for from in rule.from : from.namespace_selector[0].match_labels["kubernetes.io/metadata.name"]]]) == ["monitoring"]
    error_message = "No other namespace may connect."
  }
}

run "by_default_no_pod_reads_it" {
  command = plan

  assert {
    condition     = length(kubernetes_network_policy_v1.card_exporter.spec[0].ingress) == 0
    error_message = "No namespace was named."
  }
}

run "an_image_without_digest_is_refused" {
  command = plan

  variables {
    image = "python:3.13-slim"
  }

  expect_failures = [var.image]
}

run "cards_without_a_node_are_refused" {
  command = plan

  variables {
    nodes = {}
  }

  expect_failures = [var.nodes]
}

run "a_folder_without_the_program_is_refused" {
  command = plan

  variables {
    program = "/nowhere"
  }

  expect_failures = [var.program]
}

run "it_records_on_the_node_in_a_folder_that_one_container_hands_over" {
  command = plan

  assert {
    condition = [for volume in kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].spec[0].volume :
      [volume.host_path[0].path, volume.host_path[0].type] if length(volume.host_path) > 0
    ] == [["/var/lib/corral/records", "DirectoryOrCreate"]]
    error_message = "It must have this folder of the node, and no other."
  }

  assert {
    condition = [for one in kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].spec[0].init_container : {
      may = one.security_context[0].capabilities[0].add, mounts = [for mount in one.volume_mount : mount.name]
    }] == [{ may = tolist(["CHOWN"]), mounts = ["records"] }]
    error_message = "Only the container that hands the folder over may have a capability, and it must have nothing else."
  }

  assert {
    condition     = jsondecode(module.config.data["k8s-node1.json"]).records == "/opt/corral/records"
    error_message = "The exporter must write where the folder is mounted."
  }
}

run "a_folder_of_the_system_is_refused_for_the_records" {
  command = plan

  variables {
    records = "/var/lib/kubelet"
  }

  expect_failures = [var.records]
}

run "a_path_that_leads_up_again_is_refused_for_the_records" {
  command = plan

  variables {
    records = "/var/lib/corral/../kubelet"
  }

  expect_failures = [var.records]
}

run "it_reaches_the_alertmanager_that_is_named_and_without_one_no_name_server" {
  command = plan

  variables {
    alertmanager = { service = "alertmanager-operated", namespace = "monitoring" }
  }

  assert {
    condition     = jsondecode(module.config.data["k8s-node1.json"]).alertmanager == "http://alertmanager-operated.monitoring.svc:9093"
    error_message = "The exporter must have its address."
  }

  assert {
    condition = [for rule in kubernetes_network_policy_v1.card_exporter.spec[0].egress : [for ports in rule.ports : ports.port]] == [
      ["8080"], ["9093"], ["53", "53"], ["443", "6443"]
    ]
    error_message = "It must reach the Alertmanager, and find it by its name."
  }
}

run "without_an_alertmanager_it_reaches_no_name_server" {
  command = plan

  assert {
    condition     = jsondecode(module.config.data["k8s-node1.json"]).alertmanager == null && !contains(flatten([for rule in kubernetes_network_policy_v1.card_exporter.spec[0].egress : [for ports in rule.ports : ports.port]]), "53")
    error_message = "Nothing of it needs one."
  }
}

run "without_conventions_it_is_as_it_was" {
  command = plan

  assert {
    condition     = length(kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].spec[0].image_pull_secrets) == 0
    error_message = "None is named."
  }

  assert {
    condition     = [for one in kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].spec[0].toleration : [one.key, one.operator]] == [["nvidia.com/gpu", "Exists"]]
    error_message = "The usual taint must be tolerated, and no other."
  }

  assert {
    condition = alltrue([for metadata in [kubernetes_daemon_set_v1.card_exporter.metadata[0], kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].metadata[0]] : (
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
    condition     = kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].spec[0].image_pull_secrets[*].name == tolist(["registry", "mirror"])
    error_message = "Its images must be pulled with each of the Secrets."
  }

  assert {
    condition = [for one in kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].spec[0].toleration : [
      for value in [one.key, one.operator, one.value, one.effect, one.toleration_seconds] : value == null ? "" : value
    ]] == [["nvidia.com/mig-1g.5gb", "Exists", "", "", ""], ["dedicated", "Equal", "gpu", "NoExecute", "60"]]
    error_message = "The node may be reserved in several ways."
  }

  assert {
    condition = alltrue([for metadata in [kubernetes_daemon_set_v1.card_exporter.metadata[0], kubernetes_daemon_set_v1.card_exporter.spec[0].template[0].metadata[0]] : (
      metadata.labels.team == "home" && metadata.labels["app.kubernetes.io/part-of"] == "corral"
      && metadata.annotations == tomap({ "example.org/owner" = "ops" })
    )])
    error_message = "Object and pod must have the labels and annotations, and the module's own win."
  }
}

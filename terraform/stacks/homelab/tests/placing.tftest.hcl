# A catalog, its lock and its images become objects of a cluster.

mock_provider "kubernetes" {}

variables {
  catalog            = "tests/catalogs/good"
  store              = { nfs = { server = "nas", path = "/export/models" } }
  allowed_namespaces = ["litellm"]
}

run "a_catalog_is_placed" {
  command = plan

  assert {
    condition     = output.endpoint == "http://llama-swap.llama-cpp.svc.cluster.local:8080" && output.service == "llama-swap" && output.namespace == "llama-cpp"
    error_message = "The outputs must name the address of the models."
  }

  assert {
    condition     = [for model in output.models : model.id] == ["chat", "look.1"] && keys(output.seating.cards) == ["t4"]
    error_message = "The outputs must list the models and the seats on the card."
  }

  assert {
    condition     = startswith(output.store.claim, "models-") && output.store.node == null
    error_message = "The outputs must name the store."
  }
}

run "the_whole_lock_is_kept_as_the_applied_one" {
  command = plan

  assert {
    condition     = jsonencode(terraform_data.applied_lock.input) == jsonencode(jsondecode(file("tests/catalogs/good/lock.json")))
    error_message = "The applied lock must be available for a comparison."
  }
}

run "the_namespace_takes_only_restricted_pods" {
  command = plan

  variables {
    namespace = "models"
  }

  assert {
    condition     = kubernetes_namespace_v1.llama_cpp[0].metadata[0].name == "models" && kubernetes_namespace_v1.llama_cpp[0].metadata[0].labels["pod-security.kubernetes.io/enforce"] == "restricted"
    error_message = "Pod Security must be enforced, not only warned of."
  }

  assert {
    condition     = output.endpoint == "http://llama-swap.models.svc.cluster.local:8080" && length(kubernetes_labels.llama_cpp) == 0
    error_message = "Everything must be in the namespace that was named."
  }
}

run "no_connection_in_or_out_unless_allowed" {
  command = plan

  assert {
    condition = alltrue([for policy in kubernetes_network_policy_v1.default_deny.spec : (
      sort(policy.policy_types) == sort(["Ingress", "Egress"]) && length(policy.ingress) == 0 && length(policy.egress) == 0 && policy.pod_selector[0].match_labels == null
    )])
    error_message = "Every pod of the namespace must be cut off, but for what the modules allow."
  }
}

run "a_namespace_with_an_existing_claim_is_not_removed" {
  command = plan

  variables {
    store = { claim = "weights" }
  }

  assert {
    condition     = length(kubernetes_namespace_v1.llama_cpp) == 0
    error_message = "Removing the stack would remove the claim with the namespace."
  }

  assert {
    condition     = length(kubernetes_labels.llama_cpp) == 0 && kubernetes_network_policy_v1.default_deny.spec[0].pod_selector[0].match_labels == tomap({ "app.kubernetes.io/part-of" = "corral" })
    error_message = "The other pods of that namespace are not the stack's."
  }

  assert {
    condition     = output.namespace == "llama-cpp"
    error_message = "The namespace must be the one that was named."
  }

  assert {
    condition     = output.store.claim == "weights"
    error_message = "The claim must be the one that was named."
  }
}

run "an_operator_may_restrict_a_namespace_that_exists" {
  command = plan

  variables {
    store                = { claim = "weights" }
    enforce_pod_security = true
  }

  assert {
    condition     = kubernetes_labels.llama_cpp[0].metadata[0].name == "llama-cpp" && kubernetes_labels.llama_cpp[0].labels["pod-security.kubernetes.io/enforce"] == "restricted"
    error_message = "The namespace must refuse other pods then."
  }
}

run "the_locks_images_are_run" {
  command = plan

  assert {
    condition     = startswith(local.images["llama-swap"], "ghcr.io/mostlygeek/llama-swap:v252-cuda-non-root@sha256:")
    error_message = "The server must be the one in the lock."
  }

  assert {
    condition     = local.image_from == null
    error_message = "The lock's image is corrected in the lock."
  }

  assert {
    condition     = local.images["fetch"] == "python:3.13-slim@sha256:2222222222222222222222222222222222222222222222222222222222222222"
    error_message = "The download's image must be the one in the lock."
  }
}

run "without_an_image_of_the_engine_llama_swaps_has_it" {
  command = plan

  assert {
    condition     = local.images["llama-server"] == null && module.llama_swap["first"].engine_image == local.images["llama-swap"]
    error_message = "One image must hold both."
  }
}

run "the_engines_own_image_of_the_lock_is_run" {
  command = plan

  variables {
    catalog = "tests/catalogs/engine-image"
  }

  assert {
    condition     = startswith(local.images["llama-server"], "ghcr.io/ggml-org/llama.cpp:server-cuda@sha256:") && startswith(local.images["llama-swap"], "ghcr.io/mostlygeek/llama-swap:v252-cuda-b10775-non-root@sha256:")
    error_message = "Both must be those of the lock, by digest."
  }

  assert {
    condition     = module.llama_swap["first"].engine_image == local.images["llama-server"]
    error_message = "The pod must run it."
  }
}

run "the_servers_image_can_be_another_one" {
  command = plan

  variables {
    catalog = "tests/catalogs/no-server-image"
    image   = "example/llama-swap:v1-${jsondecode(file("tests/catalogs/good/lock.json")).engine.predicts}@sha256:3333333333333333333333333333333333333333333333333333333333333333"
  }

  assert {
    condition     = local.images["llama-swap"] == "example/llama-swap:v1-${jsondecode(file("tests/catalogs/good/lock.json")).engine.predicts}@sha256:3333333333333333333333333333333333333333333333333333333333333333"
    error_message = "The image given must take the lock's place, and the catalog need not name one then."
  }

  assert {
    condition     = local.image_from == "variable image"
    error_message = "A failed pull must point at the variable, not at the lock."
  }
}

run "the_door_knows_the_clients_of_the_lock_and_no_key" {
  command = plan

  assert {
    condition     = jsondecode(module.door["first"].guard).clients.desk == { models = ["chat"], requests = 2, role = "client" } && jsondecode(module.door["first"].guard).keys == "/run/keys/keys.json" && jsondecode(module.door["first"].guard).internal_key_file == "/run/keys/internal"
    error_message = "Who may do what must be configured; the keys must be in files that Terraform does not write."
  }

  assert {
    condition     = jsondecode(module.door["first"].guard).chosen_versions == null
    error_message = "Without an adapter that requests name, there is no version to choose."
  }

  assert {
    condition     = jsondecode(module.door["first"].guard).upstream == { host = "127.0.0.1", port = 8082 } && strcontains(module.llama_swap_config["first"].yaml, "$${env.CORRAL_SWAP_KEY}")
    error_message = "llama-swap must be reached by the guard only, and take its key from its environment."
  }
}

run "a_name_that_is_exposed_is_served_and_the_image_hosts_are_permitted" {
  command = plan

  variables {
    expose      = { hostname = "llm.home.arpa", from_namespace = "ingress-nginx", ingress_class = "nginx", tls_secret = "llm-tls" }
    image_hosts = { "images.home.arpa" = ["192.168.1.20/32"] }
  }

  assert {
    condition     = strcontains(module.door["first"].caddy, "\"llm.home.arpa\"") && strcontains(module.door["first"].caddy, "https://{http.request.hostport}")
    error_message = "The door must serve the name, and know the scheme of its pages."
  }

  assert {
    condition     = jsondecode(module.door["first"].guard).image_hosts == ["images.home.arpa"]
    error_message = "The guard must permit the hosts whose addresses are open."
  }
}

run "the_pods_go_where_the_card_is" {
  command = plan

  variables {
    store = { local = { node = "k8s-node1", path = "/srv/models" } }
  }

  assert {
    condition     = local.node == "k8s-node1" && output.store.node == "k8s-node1"
    error_message = "The node must be the card's."
  }
}

run "each_card_has_its_own_pod_and_its_own_models" {
  command = plan

  variables {
    catalog = "tests/catalogs/two-cards"
  }

  assert {
    condition     = output.nodes == { p40 = "k8s-node2", t4 = "k8s-node1" } && output.node == "k8s-node2" && local.cards == { first = "p40", t4 = "t4" }
    error_message = "Each card with models must have a pod, on its own node."
  }

  assert {
    condition = { for key, config in module.llama_swap_config : key => keys(yamldecode(config.yaml).models) } == {
      first = ["look.1"], t4 = ["chat"]
    }
    error_message = "A llama-swap must have the models of its card alone."
  }

  assert {
    condition     = [for model in output.models : model.id] == ["chat", "look.1"] && output.service == "llama-swap"
    error_message = "There must be one list of models, and one Service."
  }

  assert {
    condition     = module.llama_swap["first"].service == "llama-swap" && module.llama_swap["t4"].service == "llama-swap-t4"
    error_message = "The first card must keep the names, and each other one add its own."
  }
}

run "each_door_knows_the_doors_of_the_others" {
  command = plan

  variables {
    catalog = "tests/catalogs/two-cards"
  }

  assert {
    condition = { for key, door in module.door : key => jsondecode(door.guard).peers } == {
      first = { t4 = { host = "llama-swap-t4.llama-cpp.svc", port = 8080, models = ["chat"] } }
      t4    = { p40 = { host = "llama-swap-first.llama-cpp.svc", port = 8080, models = ["look.1"] } }
    }
    error_message = "A door must know where the models of the other cards are."
  }

  assert {
    condition = alltrue([
      for key, name in { first = "llama-swap-first.llama-cpp.svc", t4 = "llama-swap-t4.llama-cpp.svc" } :
      strcontains(module.door[key].caddy, "\"${name}\"") && strcontains(module.door[key].caddy, "\"llama-swap.llama-cpp.svc\"")
    ])
    error_message = "A door must serve the name by which the others reach it, and that of all."
  }

  assert {
    condition     = jsondecode(module.door["first"].guard).models == jsondecode(module.door["t4"].guard).models
    error_message = "Every door must know the models of all cards."
  }
}

run "with_one_card_there_is_no_peer_and_no_name_more" {
  command = plan

  assert {
    condition     = jsondecode(module.door["first"].guard).peers == {} && keys(module.door) == ["first"] && !strcontains(module.door["first"].caddy, "llama-swap-first")
    error_message = "An installation with one card must stay as it is."
  }
}

run "an_exporter_reports_the_cards_of_all_nodes" {
  command = plan

  variables {
    catalog       = "tests/catalogs/two-cards"
    card_exporter = {}
  }

  assert {
    condition     = length(module.card_exporter) == 1 && strcontains(output.alert_rules, "p40") && strcontains(output.alert_rules, "t4")
    error_message = "Each card must be reported, and its absence be an alert."
  }
}

run "the_models_of_a_card_run_together_where_they_fit_on_it" {
  command = plan

  variables {
    catalog = "tests/catalogs/together"
  }

  assert {
    condition     = yamldecode(module.llama_swap_config["t4"].yaml).routing.router.settings.matrix.sets == { main = "m0 & m1" }
    error_message = "On t4 both fit."
  }

  assert {
    condition     = keys(yamldecode(module.llama_swap_config["first"].yaml).routing.router.settings.groups) == ["eyes"]
    error_message = "On p40 one at a time does, whatever fits on t4."
  }

  assert {
    condition     = jsondecode(module.door["first"].guard).groups == { chat = "main", draft = "main", "look.1" = "eyes", spare = "eyes" }
    error_message = "The guard must know which models are in a group."
  }

  assert {
    condition     = module.llama_swap["t4"].memory_mib.limit - module.llama_swap["first"].memory_mib.limit == 768 + 1024
    error_message = "The pod's memory must hold what runs on its card."
  }
}

run "the_commands_name_what_is_mounted" {
  command = plan

  assert {
    condition = alltrue([
      for model in values(yamldecode(module.llama_swap_config["first"].yaml).models) :
      startswith(model.cmd, "${module.llama_swap["first"].folder}/preflight.sh\n") && strcontains(model.cmd, "-m ${module.llama_swap["first"].store}/")
    ])
    error_message = "The preflight and the store must be where the pod has them."
  }
}

run "without_a_word_there_is_no_exporter" {
  command = plan

  assert {
    condition     = length(module.card_exporter) == 0
    error_message = "A pod that reads the node's processes must be asked for."
  }

  assert {
    condition     = !contains(keys(jsondecode(module.door["first"].guard).clients), "monitor")
    error_message = "Without an exporter no key may be one's."
  }
}

run "the_exporter_has_a_namespace_of_its_own" {
  command = plan

  variables {
    card_exporter = {}
  }

  assert {
    condition     = module.card_exporter[0].namespace == "corral-exporter" && output.namespace == "llama-cpp"
    error_message = "It must not be beside the models, where only restricted pods are permitted."
  }

  assert {
    condition     = jsondecode(module.door["first"].guard).clients.monitor.role == "monitor"
    error_message = "The guard must know its key."
  }
}

run "the_exporter_of_a_card_that_yields_may_have_idle_models_unloaded" {
  command = plan

  variables {
    catalog       = "tests/catalogs/yields"
    card_exporter = {}
  }

  assert {
    condition     = jsondecode(module.door["first"].guard).clients.monitor == { models = [], requests = 4, role = "steward" }
    error_message = "The guard must permit it to its key, and nothing else."
  }
}

run "without_conventions_the_cluster_asks_nothing_of_a_pod" {
  command = plan

  assert {
    condition = jsonencode(local.conventions) == jsonencode({
      annotations        = {}
      gpu_resource       = "nvidia.com/gpu"
      image_pull_secrets = []
      labels             = {}
      tolerations        = [{ key = "nvidia.com/gpu", operator = "Exists" }]
    })
    error_message = "An option that is not set must change no object."
  }
}

run "every_pod_has_the_conventions_of_the_cluster" {
  command = plan

  variables {
    card_exporter      = {}
    image_pull_secrets = ["registry"]
    gpu_resource       = "nvidia.com/gpu.shared"
    labels             = { team = "home", "app.kubernetes.io/version" = "1" }
    annotations        = { "cluster-autoscaler.kubernetes.io/safe-to-evict" = "false" }
    tolerations        = [{ key = "dedicated", value = "gpu" }, { operator = "Exists", effect = "NoExecute", seconds = 60 }]
  }

  assert {
    condition = local.conventions.image_pull_secrets == tolist(["registry"]) && local.conventions.gpu_resource == "nvidia.com/gpu.shared" && (
      [for one in local.conventions.tolerations : coalesce(one.key, "any")] == ["nvidia.com/gpu.shared", "nvidia.com/gpu", "dedicated", "any"]
    )
    error_message = "The variables must reach the pods."
  }

  assert {
    condition = alltrue([for metadata in [kubernetes_namespace_v1.llama_cpp[0].metadata[0], kubernetes_network_policy_v1.default_deny.metadata[0]] : (
      metadata.labels.team == "home" && metadata.labels["app.kubernetes.io/part-of"] == "corral"
      && metadata.annotations == tomap({ "cluster-autoscaler.kubernetes.io/safe-to-evict" = "false" })
    )])
    error_message = "The stack's own objects must have them, too."
  }

}

run "fifty_users_get_in_and_the_times_are_the_operators" {
  command = plan

  variables {
    concurrency = 50
    timeouts    = { load_seconds = 900 }
  }

  assert {
    condition = [for model in values(yamldecode(module.llama_swap_config["first"].yaml).models) : model.concurrencyLimit] == [50, 50] && (
      yamldecode(module.llama_swap_config["first"].yaml).healthCheckTimeout == 900
    )
    error_message = "llama-swap must accept as many, and wait as long."
  }
}

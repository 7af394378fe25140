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
    condition     = local.images["llama-server"] == null && module.llama_swap.engine_image == local.images["llama-swap"]
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
    condition     = module.llama_swap.engine_image == local.images["llama-server"]
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
    condition     = jsondecode(module.door.guard).clients.desk == { models = ["chat"], requests = 2, role = "client" } && jsondecode(module.door.guard).keys == "/run/keys/keys.json" && jsondecode(module.door.guard).internal_key_file == "/run/keys/internal"
    error_message = "Who may do what must be configured; the keys must be in files that Terraform does not write."
  }

  assert {
    condition     = jsondecode(module.door.guard).upstream == { host = "127.0.0.1", port = 8082 } && strcontains(module.llama_swap_config.yaml, "$${env.CORRAL_SWAP_KEY}")
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
    condition     = strcontains(module.door.caddy, "\"llm.home.arpa\"") && strcontains(module.door.caddy, "https://{http.request.hostport}")
    error_message = "The door must serve the name, and know the scheme of its pages."
  }

  assert {
    condition     = jsondecode(module.door.guard).image_hosts == ["images.home.arpa"]
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

run "the_commands_name_what_is_mounted" {
  command = plan

  assert {
    condition = alltrue([
      for model in values(yamldecode(module.llama_swap_config.yaml).models) :
      startswith(model.cmd, "${module.llama_swap.folder}/preflight.sh\n") && strcontains(model.cmd, "-m ${module.llama_swap.store}/")
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
    condition     = !contains(keys(jsondecode(module.door.guard).clients), "monitor")
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
    condition     = jsondecode(module.door.guard).clients.monitor.role == "monitor"
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
    condition     = jsondecode(module.door.guard).clients.monitor == { models = [], requests = 4, role = "steward" }
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
    condition = [for model in values(yamldecode(module.llama_swap_config.yaml).models) : model.concurrencyLimit] == [50, 50] && (
      yamldecode(module.llama_swap_config.yaml).healthCheckTimeout == 900
    )
    error_message = "llama-swap must accept as many, and wait as long."
  }
}

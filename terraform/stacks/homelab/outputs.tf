output "alert_inhibit_rules" {
  description = "What the configuration of Alertmanager needs for the alerts: terraform output -raw alert_inhibit_rules. Null without an exporter."
  value       = one(module.alerts[*].inhibit_rules)
}

output "alert_operator_objects" {
  description = "The alerts, and the scrape, for the Prometheus operator: terraform output -raw … | kubectl apply -f -. Null without an exporter."
  value       = one(module.alerts[*].operator_objects)
}

output "alert_rules" {
  description = "The alerts as a file for Prometheus: terraform output -raw alert_rules > corral.rules.yml. Null without an exporter."
  value       = one(module.alerts[*].rules)
}

output "endpoint" {
  description = "The address of llama-swap inside the cluster."
  value       = module.llama_swap["first"].endpoint
}

output "gateway" {
  description = "LiteLLM's address inside the cluster, and the Secret whose entry `master` is its master key. Null without a gateway."
  value       = one([for one in module.gateway : { endpoint = one.endpoint, secret = one.secret }])
}

output "grafana_dashboards" {
  description = "Dashboards as ConfigMaps for Grafana's sidecar: terraform output -raw grafana_dashboards | kubectl apply -f -. Null without an exporter."
  value       = one(module.alerts[*].dashboards)
}

output "http_route" {
  description = "The HTTPRoute of the Gateway that `expose` names: terraform output -raw http_route | kubectl apply -f -. Null without one."
  value       = module.llama_swap["first"].http_route
}

output "images" {
  description = "The images that run, by their place: each with its digest."
  value       = { for name, image in local.images : name => image if image != null }

  precondition {
    condition = local.images_are_named
    error_message = join(" ", [
      "Not in images.yaml of the catalog: ${join(", ", local._images_missing)}. The cluster runs only images that the catalog names,",
      "e.g. llama-swap: ghcr.io/mostlygeek/llama-swap:v252-cuda-b10775-non-root, or door: caddy:2.11-alpine. Add the line, then run: corral lock",
    ])
  }

  precondition {
    condition = local.one_image_has_the_engine
    error_message = join(" ", [
      "The variable image and llama-server in images.yaml both name the engine's image, and only one can run. Take image out of",
      "terraform.tfvars, or llama-server out of images.yaml and run: corral lock",
    ])
  }
}

output "lock" {
  description = "The complete applied lock; a failed apply leaves the previous one."
  value       = terraform_data.applied_lock.output
}

output "models" {
  description = "The data of each model for a gateway, sorted by id."
  value       = [for id in sort(keys(local._by_id)) : local._by_id[id]]
}

locals {
  _by_id = { for one in flatten(values(module.llama_swap_config)[*].models) : one.id => one }
}

output "namespace" {
  description = "The namespace of all objects."
  value       = local.namespace
}

output "node" {
  description = "The node of the first card, where the download runs."
  value       = local.node

  precondition {
    condition = local.card_has_a_model_of_llama_swap
    error_message = join(" ", [
      "Card ${join(", ", local._only_vllm)} has models on vLLM alone, and requests reach them through its llama-swap.",
      "Give the card a model with engine: llama.cpp, or write it for one of these, then run: corral lock",
    ])
  }

  precondition {
    condition = local.cards_can_name_objects
    error_message = join(" ", [
      "The cards ${join(", ", local._unusable)} cannot be part of names of objects in a cluster: where there are several cards, a name has",
      "at most 32 of a-z, 0-9 and -, and is not first. Rename cards/CARD.yaml, and card of its models; then run: corral lock",
    ])
  }

  precondition {
    condition = local.card_names_its_node
    error_message = join(" ", [
      "Card ${join(", ", local._nowhere)} has no node; the pod would start on any.",
      "Write it into cards/${try(local._nowhere[0], "")}.yaml, e.g. node: k8s-node1. For the names run: kubectl get nodes",
    ])
  }

  precondition {
    condition = local.card_has_a_node_of_its_own
    error_message = join(" ", [
      "Several cards are in node ${join(", ", [for node in local._shared : coalesce(node, "none")])}: which of them a pod gets is the device plugin's choice,",
      "so their models could not be seated. Give the models of one of these cards a catalog and a namespace of their own.",
    ])
  }

  precondition {
    condition = local.yielding_card_has_its_exporter
    error_message = join(" ", [
      "Card ${join(", ", local._yields)} has yield, and no exporter decides when a model is unloaded.",
      "Write card_exporter = {} into terraform.tfvars, or take yield out of cards/${try(local._yields[0], "")}.yaml.",
    ])
  }

  precondition {
    condition = local.store_is_on_the_cards_node
    error_message = join(" ", [
      var.store.local == null ? "A volume that is ReadWriteOnce is on one node," : "The store is on node ${try(var.store.local.node, "none")},",
      "and the cards are here:",
      "${join(", ", [for name, node in local.nodes : "${name} on node ${coalesce(node, "none")}"])}; a local store must lie where the card is.",
      "Correct store.local.node, or node in cards/CARD.yaml; cards in several nodes need a store that each reaches, e.g. store.nfs.",
    ])
  }
}

output "nodes" {
  description = "The node of each card that has models, where its pod runs."
  value       = local.nodes
}

output "seating" {
  description = "The seating chart: the seats on each card, in MiB."
  value       = module.seating.chart
}

output "service" {
  description = "The name of the Service."
  value       = module.llama_swap["first"].service
}

output "store" {
  description = "The store: its claim in the namespace, and the node it is tied to, null when every node reaches it or that is not known."
  value       = { claim = module.model_store.claim, node = module.model_store.node }
}

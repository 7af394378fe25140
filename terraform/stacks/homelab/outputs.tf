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
  value       = module.llama_swap.endpoint
}

output "grafana_dashboards" {
  description = "Dashboards as ConfigMaps for Grafana's sidecar: terraform output -raw grafana_dashboards | kubectl apply -f -. Null without an exporter."
  value       = one(module.alerts[*].dashboards)
}

output "http_route" {
  description = "The HTTPRoute of the Gateway that `expose` names: terraform output -raw http_route | kubectl apply -f -. Null without one."
  value       = module.llama_swap.http_route
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
  value       = module.llama_swap_config.models
}

output "namespace" {
  description = "The namespace of all objects."
  value       = local.namespace
}

output "node" {
  description = "The node of the card, where the server's pod runs."
  value       = local.node

  precondition {
    condition = local.models_are_on_one_card
    error_message = join(" ", [
      "Models on ${length(local._models_on)} cards: ${join("; ", [for card, ids in local._models_on : "${card} (${join(", ", ids)})"])}.",
      "This stack serves one card with one pod. Keep one card's models in this catalog, and give the others a catalog of their own.",
    ])
  }

  precondition {
    condition = local.card_names_its_node
    error_message = join(" ", [
      "Card ${local._card} has no node; the pod would start on any. Write it into cards/${local._card}.yaml, e.g. node: k8s-node1.",
      "For the names run: kubectl get nodes",
    ])
  }

  precondition {
    condition = local.yielding_card_has_its_exporter
    error_message = join(" ", [
      "Card ${local._card} has yield, and no exporter decides when a model is unloaded.",
      "Write card_exporter = {} into terraform.tfvars, or take yield out of cards/${local._card}.yaml.",
    ])
  }

  precondition {
    condition = local.store_is_on_the_cards_node
    error_message = join(" ", [
      "The store is on node ${try(var.store.local.node, "none")}, card ${local._card} on node ${coalesce(local.node, "none")};",
      "a local store must lie where the card is. Correct store.local.node, or node in cards/${local._card}.yaml.",
    ])
  }
}

output "seating" {
  description = "The seating chart: the seats on each card, in MiB."
  value       = module.seating.chart
}

output "service" {
  description = "The name of the Service."
  value       = module.llama_swap.service
}

output "store" {
  description = "The store: its claim in the namespace, and the node it is tied to, null when every node reaches it or that is not known."
  value       = { claim = module.model_store.claim, node = module.model_store.node }
}

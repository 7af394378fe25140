output "caddy_config" {
  description = "The configuration of Caddy, as JSON; null without a door."
  value       = one(module.door[*].caddy)
}

output "guard_config" {
  description = "The configuration of the guard, as JSON; null without a door."
  value       = one(module.door[*].guard)
}

output "llama_swap_config" {
  description = "The llama-swap configuration of this machine, as YAML."
  value       = module.llama_swap_config.yaml
}

output "models" {
  description = "The data of each model for a gateway, sorted by id."
  value       = module.llama_swap_config.models
}

output "promises" {
  description = "What the lock promises on each card, as the configuration of an exporter has it, as JSON."
  value       = jsonencode({ seal = module.catalog.lock.seal, cards = module.seating.promises })
}

output "seating" {
  description = "The seating chart: the seats on each card, in MiB."
  value       = module.seating.chart

  precondition {
    condition = local.models_are_on_this_machine
    error_message = join(" ", [
      "Models on ${length(local._models_on)} cards: ${join("; ", [for card, ids in local._models_on : "${card} (${join(", ", ids)})"])}.",
      "The stack of this machine serves one card; several are for a cluster (corral apply). Give this machine's models a catalog of",
      "their own, with its card, and run: corral lock --catalog DIR, then: corral up --catalog DIR",
    ])
  }
}

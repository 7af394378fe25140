output "chart" {
  description = "The seating chart: each card with its tenants, its groups and their sets, and free memory, each model with its seat and its basis, in MiB."
  value       = local.chart
}

output "promises" {
  description = "What is promised on each card, by name, in bytes: `cards` of an exporter's configuration."
  value       = local.promises
}

output "seats" {
  description = "The seat of each model in whole MiB, by id."
  value       = local._seats

  precondition {
    condition     = local.every_model_has_a_figure
    error_message = "Neither predicted nor declared in lock.json: ${join(", ", local._without_figure)}. No model is seated on a guess. Run: corral lock"
  }

  precondition {
    condition = local.card_holds_its_set
    error_message = join("\n", [for name in local._short_cards : join(" ", [
      "Card ${name} is short of ${local._short[name]} MiB:",
      join(", ", concat(local._takers[name], ["the reserve ${var.cards[name].reserve_mib}"])),
      "add up to ${local._used[name]} of its ${var.cards[name].vram_mib} MiB. For remedies run: corral seat",
    ])])
  }
}

output "together" {
  description = "The sets of models that run at the same time, by card and group: each set of one group beside each of another; the largest first."
  value       = local.together
}

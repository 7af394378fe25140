output "chart" {
  description = "The seating chart: each card with its tenants, groups and free memory, each model with its seat and its basis, in MiB."
  value       = local.chart
}

output "promises" {
  description = "What is promised on each card, by name, in bytes: `cards` of an exporter's configuration."
  value       = local.promises

  depends_on = [terraform_data.card_holds_its_set, terraform_data.every_model_has_a_figure]
}

output "seats" {
  description = "The seat of each model in whole MiB, by id."
  value       = local._seats

  depends_on = [terraform_data.card_holds_its_set, terraform_data.every_model_has_a_figure]
}

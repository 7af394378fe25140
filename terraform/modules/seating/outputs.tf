output "chart" {
  description = "The seating chart: each card with its tenants, slots, what is left and, where it is short, the remedies; each model with its seat and the largest context that fits. There even where something is refused."
  value       = local.chart
}

output "seats" {
  description = "The seat of each model in whole MiB, by id."
  value       = local._seats

  depends_on = [
    terraform_data.card_holds_its_set,
    terraform_data.cards_are_readable,
    terraform_data.context_is_trained,
    terraform_data.declaration_covers_measurement,
    terraform_data.every_model_has_a_card,
    terraform_data.every_model_is_measured,
    terraform_data.ledger_is_readable,
    terraform_data.lock_is_fresh,
    terraform_data.measurement_adds_up,
    terraform_data.measurement_belongs_to_argv,
    terraform_data.tenants_are_listed_once,
  ]
}

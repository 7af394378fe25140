output "llama_swap_config" {
  description = "The llama-swap configuration of this machine, as YAML."
  value       = module.llama_swap_config.yaml
}

output "models" {
  description = "What a gateway needs to know of each model, sorted by id."
  value       = module.llama_swap_config.models
}

output "seating" {
  description = "The seating chart: who sits where on each card, in MiB."
  value       = module.seating.chart
}

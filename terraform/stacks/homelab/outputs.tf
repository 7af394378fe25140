output "endpoint" {
  description = "Where llama-swap listens, as a pod in the cluster reaches it."
  value       = module.llama_swap.endpoint
}

output "lock" {
  description = "The lock that is applied, whole; an apply that fails leaves the one before."
  value       = terraform_data.applied_lock.output
}

output "models" {
  description = "What a gateway needs to know of each model, sorted by id."
  value       = module.llama_swap_config.models
}

output "namespace" {
  description = "The namespace that everything is in."
  value       = local.namespace
}

output "seating" {
  description = "The seating chart: who sits where on each card, in MiB."
  value       = module.seating.chart
}

output "service" {
  description = "The name of the Service."
  value       = module.llama_swap.service
}

output "store" {
  description = "The store: its claim in the namespace, and the node it is tied to, null when every node reaches it."
  value       = { claim = module.model_store.claim, node = module.model_store.node }
}

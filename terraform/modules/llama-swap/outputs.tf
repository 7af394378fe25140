output "endpoint" {
  description = "The address of llama-swap inside the cluster."
  value       = "http://${kubernetes_service_v1.llama_swap.metadata[0].name}.${var.namespace}.svc.cluster.local:8080"
}

output "folder" {
  description = "The folder of the configuration and preflight.sh in the container."
  value       = local.folder
}

output "memory_mib" {
  description = "The pod's request and limit, in MiB."
  value       = { request = local.memory_request_mib, limit = local.memory_limit_mib }
}

output "service" {
  description = "The name of the Service."
  value       = kubernetes_service_v1.llama_swap.metadata[0].name
}

output "store" {
  description = "The folder of the model store in the container."
  value       = local.store
}

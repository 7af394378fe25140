output "endpoint" {
  description = "Where llama-swap listens, as a pod in the cluster reaches it."
  value       = "http://${kubernetes_service_v1.llama_swap.metadata[0].name}.${var.namespace}.svc.cluster.local:8080"
}

output "folder" {
  description = "Where the container has the configuration and preflight.sh."
  value       = local.folder
}

output "memory_mib" {
  description = "What the pod asks the node for, and the most that it may take, in MiB."
  value       = { request = local.memory_request_mib, limit = local.memory_limit_mib }
}

output "service" {
  description = "The name of the Service."
  value       = kubernetes_service_v1.llama_swap.metadata[0].name
}

output "store" {
  description = "Where the container has the model store."
  value       = local.store
}

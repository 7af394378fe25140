output "endpoint" {
  description = "The address of LiteLLM inside the cluster."
  value       = "http://${kubernetes_service_v1.gateway.metadata[0].name}.${var.namespace}.svc.cluster.local:${local.port}"
}

output "secret" {
  description = "The Secret with LiteLLM's keys, which `corral apply` makes: `master`, `door`, `salt`."
  value       = local.secret
}

output "address" {
  description = "The address of the model inside the cluster: `proxy` of a peer of llama-swap."
  value       = "http://${kubernetes_service_v1.vllm.metadata[0].name}.${var.namespace}.svc:${local.port}"
}

output "job" {
  description = "The name of the Job; known when the Job has completed."
  value       = kubernetes_job_v1.download_models.metadata[0].name
}

output "program" {
  description = "The ConfigMaps with the agent and its part of the lock, the digest of both, and the user and group that own the store's files."
  value = {
    agent  = kubernetes_config_map_v1.agent.metadata[0].name
    lock   = kubernetes_config_map_v1.lock.metadata[0].name
    digest = sha256(jsonencode([kubernetes_config_map_v1.agent.data, kubernetes_config_map_v1.lock.data]))
    user   = local.user
  }
}

output "job" {
  description = "The name of the Job; known when the Job has completed."
  value       = kubernetes_job_v1.download_models.metadata[0].name
}

output "program" {
  description = "The ConfigMaps with the agent and its part of the lock, and the user and group that own the store's files."
  value = {
    agent = module.agent.name
    lock  = module.lock.name
    user  = local.user
  }
}

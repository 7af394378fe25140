output "job" {
  description = "The name of the Job; known when the Job has completed."
  value       = kubernetes_job_v1.download_models.metadata[0].name
}

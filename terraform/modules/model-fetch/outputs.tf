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

  precondition {
    condition = local.models_come_from_a_hub
    error_message = join(" ", [
      "Models that lie on the operator's disk: ${join(", ", local._models_on_disk)}. The cluster can only fetch from a hub.",
      "Give each a repo in place of its path, then run: corral lock",
    ])
  }

  precondition {
    condition = local.private_hub_has_its_addresses
    error_message = join(" ", [
      "The hub ${local._hub_host} is in a private network, which the download may not reach.",
      "Name its addresses in hub_cidrs, e.g. [\"192.168.1.20/32\"].",
    ])
  }
}

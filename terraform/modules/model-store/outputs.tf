output "claim" {
  description = "The name of the claim, for the pods that mount it."
  value = one(concat(
    kubernetes_persistent_volume_claim_v1.models[*].metadata[0].name,
    kubernetes_persistent_volume_claim_v1.provisioned[*].metadata[0].name,
    var.store.claim[*],
  ))
}

output "node" {
  description = "The node whose disk holds the models; null when every node reaches them, or a claim or a StorageClass decides."
  value       = try(var.store.local.node, null)
}

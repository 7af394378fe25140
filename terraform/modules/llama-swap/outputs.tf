output "chosen_versions" {
  description = "The file in the guard's container with the versions of adapters that were chosen; without `has_adapters` there is none."
  value       = "${local.adapters}/versions.json"
}

output "deployment" {
  description = "The name of the Deployment, when its pod is ready."
  value       = kubernetes_deployment_v1.llama_swap.metadata[0].name
}

output "endpoint" {
  description = "The address of llama-swap inside the cluster."
  value       = "http://${kubernetes_service_v1.llama_swap.metadata[0].name}.${var.namespace}.svc.cluster.local:8080"
}

output "engine_image" {
  description = "The image whose llama-server runs: `engine_image`, else `image`."
  value       = coalesce(var.engine_image, var.image)
}

output "folder" {
  description = "The folder of the configuration and preflight.sh in the container."
  value       = local.folder
}

output "hosts" {
  description = "The names under which the pod is reached: the Service's, and loopback's for a forwarded port."
  value = concat(["127.0.0.1", "localhost"], [
    for domain in local._domains : "${local.name}${domain}"
  ], var.expose[*].hostname)
}

output "http_route" {
  description = "The HTTPRoute that leads from the Gateway to the door, as YAML; null without a Gateway."
  value       = local.http_route == null ? null : yamlencode(local.http_route)
}

output "keys" {
  description = "The files of the keys in the guard's container: the hashes of the clients' keys, and llama-swap's own key."
  value       = { clients = "${local.keys}/keys.json", internal = local._internal }
}

output "memory_mib" {
  description = "The pod's request and limit, in MiB."
  value = {
    request = local.memory_request_mib + local.guard_mib.request + local.door_mib.request
    limit   = local.memory_limit_mib + local.guard_mib.limit + local.door_mib.limit
  }
}

output "public_scheme" {
  description = "The scheme of the exposed name: https where TLS ends before the door; null where nothing is exposed."
  value       = var.expose == null ? null : (var.expose.gateway == null ? var.expose.tls_secret != null : var.expose.tls) ? "https" : "http"
}

output "ports" {
  description = "The ports in the pod: of the door, the guard and llama-swap."
  value       = local.ports
}

output "service" {
  description = "The name of the Service."
  value       = kubernetes_service_v1.llama_swap.metadata[0].name
}

output "store" {
  description = "The folder of the model store in the container."
  value       = local.store
}

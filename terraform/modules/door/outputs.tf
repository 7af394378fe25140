output "caddy" {
  description = "The configuration of Caddy, as JSON. Caddy runs in the folder of the guard's socket."
  value       = jsonencode(local.caddy)
}

output "guard" {
  description = "The configuration of the guard (tools/corral/door), as JSON."
  value       = jsonencode(local.guard)

  precondition {
    condition     = local.clients_have_keys
    error_message = "There are clients (${join(", ", local._named)}), and no keys: without keys every request has the operator's rights."
  }

  precondition {
    condition     = local.clients_name_known_models
    error_message = "Clients have models that are not in the lock: ${join(", ", local._unknown_models)}. Run: corral lock"
  }
}

output "caddy" {
  description = "The configuration of Caddy, as JSON. Caddy runs in the folder of the guard's socket."
  value       = jsonencode(local.caddy)
}

output "guard" {
  description = "The configuration of the guard (tools/corral/door), as JSON."
  value       = jsonencode(local.guard)

  depends_on = [terraform_data.clients_have_keys, terraform_data.clients_name_known_models]
}

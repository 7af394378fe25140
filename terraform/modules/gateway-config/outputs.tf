output "fallbacks" {
  description = "The fallbacks of LiteLLM's router: a name to a list of one id."
  value       = local.fallbacks
}

output "model_list" {
  description = "LiteLLM's `model_list`: every id, every alias and every adapter."
  value       = local.model_list
}

output "yaml" {
  description = "The configuration of LiteLLM's proxy, complete. Its keys are variables of LiteLLM's environment."
  value       = "# Rendered by Terraform from a catalog and its lock: change those, not this file.\n${yamlencode(local.config)}"
}

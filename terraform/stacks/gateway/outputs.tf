output "fallbacks" {
  description = "The fallbacks of LiteLLM's router: a name to a list of one id."
  value       = module.gateway_config.fallbacks
}

output "model_list" {
  description = "LiteLLM's `model_list`: every id, every alias and every adapter."
  value       = module.gateway_config.model_list
}

output "yaml" {
  description = "The configuration of LiteLLM's proxy, complete."
  value       = module.gateway_config.yaml
}

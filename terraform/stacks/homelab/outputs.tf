output "alert_inhibit_rules" {
  description = "What the configuration of Alertmanager needs for the alerts: terraform output -raw alert_inhibit_rules. Null without an exporter."
  value       = one(module.alerts[*].inhibit_rules)
}

output "alert_operator_objects" {
  description = "The alerts, and the scrape, for the Prometheus operator: terraform output -raw … | kubectl apply -f -. Null without an exporter."
  value       = one(module.alerts[*].operator_objects)
}

output "alert_rules" {
  description = "The alerts as a file for Prometheus: terraform output -raw alert_rules > corral.rules.yml. Null without an exporter."
  value       = one(module.alerts[*].rules)
}

output "endpoint" {
  description = "The address of llama-swap inside the cluster."
  value       = module.llama_swap.endpoint
}

output "grafana_dashboards" {
  description = "Dashboards as ConfigMaps for Grafana's sidecar: terraform output -raw grafana_dashboards | kubectl apply -f -. Null without an exporter."
  value       = one(module.alerts[*].dashboards)
}

output "http_route" {
  description = "The HTTPRoute of the Gateway that `expose` names: terraform output -raw http_route | kubectl apply -f -. Null without one."
  value       = module.llama_swap.http_route
}

output "lock" {
  description = "The complete applied lock; a failed apply leaves the previous one."
  value       = terraform_data.applied_lock.output
}

output "models" {
  description = "The data of each model for a gateway, sorted by id."
  value       = module.llama_swap_config.models
}

output "namespace" {
  description = "The namespace of all objects."
  value       = local.namespace
}

output "seating" {
  description = "The seating chart: the seats on each card, in MiB."
  value       = module.seating.chart
}

output "service" {
  description = "The name of the Service."
  value       = module.llama_swap.service
}

output "store" {
  description = "The store: its claim in the namespace, and the node it is tied to, null when every node reaches it or that is not known."
  value       = { claim = module.model_store.claim, node = module.model_store.node }
}

output "dashboards" {
  description = "Grafana's dashboards, as YAML of ConfigMaps that its sidecar finds by the label grafana_dashboard: the card, models, the store, an incident."
  value       = join("---\n", [for one in local.dashboards : yamlencode(one)])
}

output "inhibit_rules" {
  description = "The `inhibit_rules` of an Alertmanager's configuration, as YAML: without them a dead exporter resolves every other alert."
  value       = yamlencode({ inhibit_rules = local.inhibit_rules })
}

output "operator_objects" {
  description = "A PrometheusRule and a ServiceMonitor of each exporter for the Prometheus operator, as YAML."
  value       = join("---\n", [for one in local.operator_objects : yamlencode(one)])
}

output "rules" {
  description = "The rules as a file for Prometheus, as YAML."
  value       = yamlencode(local.rules)
}

output "namespace" {
  description = "The namespace of the exporter's pods."
  value       = kubernetes_namespace_v1.card_exporter.metadata[0].name
}

output "port" {
  description = "The port of the metrics."
  value       = local.port
}

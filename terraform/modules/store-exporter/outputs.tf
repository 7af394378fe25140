output "port" {
  description = "The port of the metrics."
  value       = local.port
}

output "binary_data" {
  description = "The files that are not text, in base64."
  value       = kubernetes_config_map_v1.by_content[local._hash].binary_data
}

output "data" {
  description = "The text files."
  value       = kubernetes_config_map_v1.by_content[local._hash].data
}

output "name" {
  description = "The name to mount it by: it changes exactly when the content does."
  value       = kubernetes_config_map_v1.by_content[local._hash].metadata[0].name
}

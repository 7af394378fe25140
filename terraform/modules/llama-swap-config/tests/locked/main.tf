# Stands in for `corral lock`: a lock that belongs to the given intents.

variable "models" {
  type = any
}

output "lock" {
  value = {
    version = 1
    models = { for id, intent in var.models : id => {
      intent_sha256 = sha256(jsonencode(intent))
      argv          = ["llama-server", "-m", "$${STORE}/${id}/model.gguf", "-c", tostring(intent.context), "--port", "$${PORT}"]
    } }
  }
}

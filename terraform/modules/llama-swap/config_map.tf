locals {
  folder = "/etc/llama-swap"
  store  = "/models"

  # Every word of a command that is a path in the store.
  _paths = distinct(flatten([for model in values(var.models) : [
    for word in model.argv : replace(word, "$${STORE}", local.store) if startswith(word, "$${STORE}/")
  ]]))

  files = {
    "config.yaml"  = var.config
    "drain.sh"     = file("${path.module}/drain.sh")
    "models.txt"   = "${join("\n", local._paths)}\n"
    "preflight.sh" = var.preflight
    "started.sh"   = file("${path.module}/started.sh")
  }
}

resource "kubernetes_config_map_v1" "llama_swap" {
  metadata {
    name      = local.name
    namespace = var.namespace
    labels    = local.labels
  }

  data = local.files
}

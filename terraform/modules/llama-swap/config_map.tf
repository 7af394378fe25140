locals {
  folder      = "/etc/llama-swap"
  door_folder = "/etc/door"
  keys        = "/run/keys"
  adapters    = "/run/adapters"
  store       = "/models"

  # Every file of the store that a command names: a word of its own, or several in one word, as `--lora-scaled` has them (FILE:SCALE,…).
  _paths = distinct(flatten([for model in values(var.models) : [
    for word in model.argv : [for path in regexall("\\$\\{STORE\\}/[^,:]+", word) : replace(path, "$${STORE}", local.store)] if startswith(word, "$${STORE}/")
  ]]))

  files = {
    "ask.sh"       = file("${path.module}/ask.sh")
    "config.yaml"  = var.config
    "drain.sh"     = file("${path.module}/drain.sh")
    "holders.sh"   = var.holders
    "models.txt"   = "${join("\n", local._paths)}\n"
    "preflight.sh" = var.preflight
    "started.sh"   = file("${path.module}/started.sh")
  }

  door = { "caddy.json" = var.caddy, "guard.json" = var.guard }

  _guard = coalesce(var.guard_files, "${path.module}/../../../tools/corral/door")
  guard  = { for path in fileset(local._guard, "[^.]*.py") : path => file("${local._guard}/${path}") }
}

module "config" {
  source = "../config-map"

  name        = "${local.name}-config"
  namespace   = var.namespace
  labels      = local.labels
  annotations = local.annotations
  data        = local.files
}

module "door" {
  source = "../config-map"

  name        = "${local.name}-door"
  namespace   = var.namespace
  labels      = local.labels
  annotations = local.annotations
  data        = local.door
}

module "guard" {
  source = "../config-map"

  name        = "${local.name}-guard"
  namespace   = var.namespace
  labels      = local.labels
  annotations = local.annotations
  data        = local.guard
}

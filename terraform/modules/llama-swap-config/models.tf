locals {
  # What an intent may leave out; the same values as in corral.catalog.intent, which a test compares.
  _model_defaults = {
    aliases   = []
    parallel  = 1
    reasoning = "auto"
    slot      = "main"
    ttl       = 600
  }

  models = { for id in keys(local.entries) : id => merge(local._model_defaults, var.models[id]) }
}

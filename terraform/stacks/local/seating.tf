# One llama-swap serves a machine, and its preflight compares every model with the one card that the machine has: seats on a second
# card would be promises about a card that is elsewhere.
locals {
  _models_on                 = { for id, model in module.catalog.lock.models : model.intent.card => id... }
  models_are_on_this_machine = length(local._models_on) <= 1

  together = local.models_are_on_this_machine ? merge(values(module.seating.together)...) : {}
}

module "seating" {
  source = "../../modules/seating"

  cards  = module.catalog.lock.cards
  models = module.catalog.lock.models
}

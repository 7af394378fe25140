# One llama-swap serves a machine, and its preflight compares every model with the one card that the machine has: seats on a second
# card would be promises about a card that is elsewhere.
locals {
  _models_on                 = { for id, model in module.catalog.lock.models : model.intent.card => id... }
  models_are_on_this_machine = length(local._models_on) <= 1
}

module "seating" {
  source = "../../modules/seating"

  cards  = module.catalog.lock.cards
  models = module.catalog.lock.models
}

# One llama-swap chooses what runs by the sets of one card.
locals {
  _seated = [for groups in values(module.seating.together) : groups if length(groups) > 0]
}

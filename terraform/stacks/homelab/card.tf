# One pod on one card: the models of this stack share a card, and the pod runs on its node.

locals {
  _models_on = { for id, model in module.catalog.lock.models : model.intent.card => id... }
  _card      = try(keys(local._models_on)[0], "")
  node       = try(module.catalog.lock.cards[local._card].node, null)
  _yields    = try(module.catalog.lock.cards[local._card].yield, null) != null

  # The rules, in the order in which they are mended: one that cannot be decided yet holds.
  models_are_on_one_card         = length(local._models_on) == 1
  card_names_its_node            = !local.models_are_on_one_card || local.node != null
  yielding_card_has_its_exporter = !local.models_are_on_one_card || !local._yields || var.card_exporter != null
  store_is_on_the_cards_node     = local.node == null || var.store.local == null || try(var.store.local.node == local.node, false)
}

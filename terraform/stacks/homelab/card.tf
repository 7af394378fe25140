# One pod on each card that has models, and one Service in front of all of them.
#
# The first card, by name, is the one whose objects are called llama-swap; each other one adds its name.  So an installation with
# one card has the names that it always had, and no card's Deployment takes the name of another card's.

locals {
  _models_on = { for id, model in module.catalog.lock.models : model.intent.card => id... }
  _cards     = length(local._models_on) == 0 ? [""] : sort(keys(local._models_on)) # a lock without models is refused by the module catalog
  _several   = length(local._cards) > 1

  # By the key of its pod: first, else the card's name.
  cards = { for i, name in local._cards : (i == 0 ? "first" : name) => name }

  nodes = { for name in local._cards : name => try(module.catalog.lock.cards[name].node, null) }
  node  = try(local.nodes[local.cards.first], null)

  # What llama-swap of the card runs, and what runs beside it.
  models_of = { for key, name in local.cards : key => {
    for id in try(local._models_on[name], []) : id => module.catalog.lock.models[id] if !contains(keys(local.on_vllm), id)
  } }
  vllm_of = { for key, name in local.cards : key => [for id, model in local.on_vllm : id if model.intent.card == name] }
  on_vllm = { for id, model in module.catalog.lock.models : id => model if try(model.intent.engine, "llama.cpp") == "vllm" }

  _service_of = { for key in keys(local.cards) : key => "llama-swap-${contains(local._unusable, key) ? "refused" : key}" } # leads to the pod of this card alone
  peers_of = { for key in keys(local.cards) : key => {
    for other, name in local.cards : name => {
      host   = "${local._service_of[other]}.${var.namespace}.svc"
      port   = module.llama_swap["first"].ports.door
      models = local._models_on[name]
    } if other != key
  } }

  _yields = [for name in local._cards : name if try(module.catalog.lock.cards[name].yield, null) != null]

  # What a card's name is part of: names of objects, which are shorter, and have no dot.
  _unusable = [for key, name in local.cards : name if key != "first" && (name == "first" || !can(regex("^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$", name)))]
  _shared   = [for node in distinct(values(local.nodes)) : node if length([for one in values(local.nodes) : one if one == node]) > 1]
  _nowhere  = [for name, node in local.nodes : name if node == null && name != ""]

  _one_mounts = var.store.storage_class != null && coalesce(var.store.access_mode, "ReadWriteOnce") == "ReadWriteOnce"

  _only_vllm = [for key, name in local.cards : name if length(local.vllm_of[key]) > 0 && length(local.models_of[key]) == 0]

  # The rules, in the order in which they are mended: one that cannot be decided yet holds.
  card_has_a_model_of_llama_swap = length(local._only_vllm) == 0
  cards_can_name_objects         = length(local._unusable) == 0
  card_names_its_node            = length(local._nowhere) == 0
  card_has_a_node_of_its_own     = length(local._nowhere) > 0 || length(local._shared) == 0
  yielding_card_has_its_exporter = length(local._yields) == 0 || var.card_exporter != null
  store_is_on_the_cards_node = length(local._nowhere) > 0 || (var.store.local == null ? !local._several || !local._one_mounts : try(
    alltrue([for node in values(local.nodes) : coalesce(node, var.store.local.node) == var.store.local.node]), false
  ))
}

moved {
  from = module.llama_swap
  to   = module.llama_swap["first"]
}

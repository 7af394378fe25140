# A card is read only when all of it makes sense; its models are not seated otherwise.

locals {
  _decoded = { for name, text in var.cards : name => try(yamldecode(text), null) }

  _card_problems = { for name, card in local._decoded : name => compact([
    can(keys(card)) ? "" : "it is no mapping",
    try(card.vram_mib > 0 && floor(card.vram_mib) == card.vram_mib, false) ? "" : "vram_mib must be a whole number of MiB",
    !can(card.reserve_mib) || try(card.reserve_mib >= 0 && floor(card.reserve_mib) == card.reserve_mib, false) ? "" : "reserve_mib must be a whole number of MiB",
    !can(card.tenants) || can(keys(card.tenants)) ? "" : "tenants must be a mapping",
    join(", ", [
      for tenant, promised in try({ for key, value in card.tenants : key => value }, {}) : "tenant ${tenant} has no whole number of MiB as budget_mib"
      if !try(promised.budget_mib > 0 && floor(promised.budget_mib) == promised.budget_mib, false)
    ]),
  ]) }
  _cards_bad = [for name, problems in local._card_problems : "${name} (${join("; ", problems)})" if length(problems) > 0]

  _cards = { for name, card in local._decoded : name => {
    vram_mib    = card.vram_mib
    reserve_mib = try(card.reserve_mib, 512) # the same default as in corral.catalog.intent
    capability  = try(tostring(card.compute_capability), "")
    tenants     = { for tenant, promised in try(card.tenants, {}) : tenant => promised.budget_mib }
  } if length(local._card_problems[name]) == 0 }

  _models_without_card = [
    for id, model in local._models : "${id} (${try(tostring(model.card), "none")})"
    if !can(var.cards[model.card])
  ]
  _cards_known = length(var.cards) == 0 ? "cards/ has none" : "there are: ${join(", ", keys(var.cards))}"

  _cards_are_readable     = length(local._cards_bad) == 0 ? "" : "Cards that cannot be read: ${join(", ", local._cards_bad)}. What is on a card must be known in whole MiB. For the line and the reason run: corral validate"
  _every_model_has_a_card = length(local._models_without_card) == 0 ? "" : "Models whose card does not exist: ${join(", ", local._models_without_card)}; ${local._cards_known}. Name one of them, or write the file, then run: corral lock"
}

resource "terraform_data" "cards_are_readable" {
  lifecycle {
    precondition {
      condition     = local._cards_are_readable == ""
      error_message = local._cards_are_readable
    }
  }
}

resource "terraform_data" "every_model_has_a_card" {
  lifecycle {
    precondition {
      condition     = local._every_model_has_a_card == ""
      error_message = local._every_model_has_a_card
    }
  }
}

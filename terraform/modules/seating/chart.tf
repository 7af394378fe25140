# One model of each group can run at any time, so a group takes what its largest model takes; together.tf has which run beside it.

locals {
  _groups = { for name in keys(var.cards) : name => {
    for group, ids in { for id, model in var.models : model.intent.group => id... if model.intent.card == name } : group => {
      mib    = max([for id in ids : local._seats[id]]...)
      models = { for id in ids : id => local._seats[id] }
    }
  } }

  _used = { for name, card in var.cards : name => sum(concat(
    [card.reserve_mib], [for tenant in values(card.tenants) : tenant.budget_mib], [for group in values(local._groups[name]) : group.mib],
  )) }
  _short = { for name, card in var.cards : name => max(0, local._used[name] - card.vram_mib) }

  _short_cards       = sort([for name, mib in local._short : name if mib > 0])
  card_holds_its_set = length(local._short_cards) == 0

  # The largest first.
  _takers = { for name, card in var.cards : name => [
    for line in reverse(sort(concat(
      [for tenant, promised in card.tenants : format("%012d\n%s %d", promised.budget_mib, tenant, promised.budget_mib)],
      [for group, taken in local._groups[name] : format("%012d\ngroup %s %d (%s)", taken.mib, group, taken.mib, join(", ", [
        for id, mib in taken.models : local._basis[id] == "predicted" ? id : "${id}, ${local._basis[id]}" if mib == taken.mib
      ]))],
    ))) : split("\n", line)[1]
  ] }

  chart = {
    cards = { for name, card in var.cards : name => {
      vram_mib    = card.vram_mib
      reserve_mib = card.reserve_mib
      tenants     = { for tenant, promised in card.tenants : tenant => promised.budget_mib }
      groups      = { for group, taken in local._groups[name] : group => merge(taken, { sets = local.together[name][group] }) }
      used_mib    = local._used[name]
      free_mib    = card.vram_mib - local._used[name]
      short_mib   = local._short[name]
    } }
    models = { for id, model in var.models : id => {
      card  = model.intent.card
      group = model.intent.group
      mib   = local._seats[id]
      basis = local._basis[id]
    } }
  }
}

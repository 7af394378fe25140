locals {
  # Everyone on the card, the largest first.
  _takers = { for name, card in local._cards : name => [
    for line in reverse(sort(concat(
      [for tenant, budget in card.tenants : format("%012d\n%s %d", budget, tenant, budget)],
      [for slot, mib in local._slot_mib[name] : format("%012d\nslot %s %d (%s)", mib, slot, mib, join(", ", [
        for id, seat in local._slots[name][slot] : local._basis[id] == "predicted" ? id : "${id}, ${local._basis[id]}" if seat == mib
      ]))],
    ))) : split("\n", line)[1]
  ] }

  _remedies_told = { for name, remedies in local._remedies : name => [for remedy in remedies : {
    context       = try("lower the context of ${remedy.model} from ${local._models[remedy.model].context} to ${remedy.value}", "")
    slot          = try("move ${remedy.model} to slot ${remedy.value}", "")
    tenant_budget = try("lower the budget of ${remedy.tenant} from ${local._cards[name].tenants[remedy.tenant]} to ${remedy.value} MiB", "")
  }[remedy.action]] }

  _not_fitting = { for name, card in local._cards : name => join(" ", [
    "Card ${name} is short of ${local._short[name]} MiB: ${join(", ", concat(local._takers[name], ["the reserve ${card.reserve_mib}"]))} add up to ${local._used[name]} of its ${card.vram_mib} MiB.",
    length(local._remedies[name]) > 0
    ? "Each of these alone would do: ${join("; ", local._remedies_told[name])}."
    : "No single change of a context, a slot or a budget would do: the largest are ${join(", ", slice(local._takers[name], 0, min(3, length(local._takers[name]))))}.",
    "For the chart and the exact edit run: corral seat",
  ]) if local._short[name] > 0 }
}

resource "terraform_data" "card_holds_its_set" {
  for_each = local._cards

  lifecycle {
    precondition {
      condition     = local._short[each.key] == 0
      error_message = try(local._not_fitting[each.key], "")
    }
  }
}

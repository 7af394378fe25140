# For a card that is short: of each kind of change the best one that makes the set fit all by itself.

locals {
  # Lower a context: the one that keeps the greatest share of itself.
  _lower_context = { for name, ids in local._on_card : name => reverse(sort(flatten([
    for id in ids : [
      for context in [try(max([for rung in local._contexts_that_fit[id] : rung if rung < local._models[id].context]...), 0)] :
      format("%09d %012d %s", floor(1000000 * context / local._models[id].context), context, id) if context > 0
    ]
  ]))) if local._short[name] > 0 }

  # Move a model into another slot of the card: the move that leaves most room, and then the smallest model.
  _move = { for name, slots in local._slots : name => sort(flatten([
    for from, seats in slots : [for id, mib in seats : [
      for to, taken in local._slot_mib[name] : format(
        "%012d %012d %s %s",
        local._used[name] - local._slot_mib[name][from] - taken + local._others[id] + max(taken, mib), mib, id, to,
      )
      if to != from && local._used[name] - local._slot_mib[name][from] - taken + local._others[id] + max(taken, mib) <= local._cards[name].vram_mib
    ]]
  ])) if local._short[name] > 0 }

  # Lower a budget: the largest one.
  _lower_budget = { for name, card in local._cards : name => reverse(sort([
    for tenant, budget in card.tenants : format("%012d %s", budget, tenant) if budget > local._short[name]
  ])) if local._short[name] > 0 }

  _remedies = { for name in keys(local._cards) : name => concat(
    [for best in slice(try(local._lower_context[name], []), 0, min(1, try(length(local._lower_context[name]), 0))) : {
      action = "context"
      model  = split(" ", best)[2]
      value  = tonumber(split(" ", best)[1])
    }],
    [for best in slice(try(local._move[name], []), 0, min(1, try(length(local._move[name]), 0))) : {
      action = "slot"
      model  = split(" ", best)[2]
      value  = split(" ", best)[3]
    }],
    [for best in slice(try(local._lower_budget[name], []), 0, min(1, try(length(local._lower_budget[name]), 0))) : {
      action = "tenant_budget"
      tenant = split(" ", best)[1]
      value  = tonumber(split(" ", best)[0]) - local._short[name]
    }],
  ) }
}

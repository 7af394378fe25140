locals {
  _refusals = compact([
    local._lock_is_fresh,
    local._cards_are_readable,
    local._tenants_are_listed_once,
    local._every_model_has_a_card,
    local._every_model_is_measured,
    local._measurement_adds_up,
    local._measurement_belongs_to_argv,
    local._declaration_covers_measurement,
    local._context_is_trained,
    local._ledger_is_readable,
  ])

  chart = {
    cards = { for name, card in local._cards : name => {
      vram_mib    = card.vram_mib
      reserve_mib = card.reserve_mib
      tenants     = card.tenants
      slots       = { for slot, seats in local._slots[name] : slot => { mib = local._slot_mib[name][slot], models = seats } }
      used_mib    = local._used[name]
      free_mib    = local._free[name]
      short_mib   = local._short[name]
      fits        = local._short[name] == 0 && !anytrue([for id in keys(local._unseated) : try(var.models[id].card, name) == name])
      remedies    = local._remedies[name]
      together    = try(local._together[name], null)
      reason      = try(local._not_fitting[name], null)
    } }
    models = { for id, mib in local._seats : id => {
      card            = local._models[id].card
      slot            = local._models[id].slot
      mib             = mib
      basis           = local._basis[id]
      predicted_mib   = ceil(local._total[id] / local._mib)
      measured_mib    = local._measured[id] > 0 ? ceil(local._measured[id] / local._mib) : null
      context         = local._models[id].context
      context_trained = try(local._vram[id].context_trained, null)
      largest_context = local._largest_context[id]
    } }
    unseated = local._unseated
    refusals = local._refusals
    warnings = compact(values(local._advice))
  }
}

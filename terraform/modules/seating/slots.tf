# One model of a slot is resident at a time, models of two slots side by side: a slot takes what its largest takes.

locals {
  _on_card = { for name in keys(local._cards) : name => [for id in keys(local._seats) : id if local._models[id].card == name] }
  _slots = { for name, ids in local._on_card : name => {
    for slot, members in { for id in ids : local._models[id].slot => id... } :
    slot => { for id in members : id => local._seats[id] }
  } }
  _slot_mib = { for name, slots in local._slots : name => { for slot, seats in slots : slot => max(values(seats)...) } }

  _promised = { for name, card in local._cards : name => sum(concat([card.reserve_mib], values(card.tenants))) }
  _used     = { for name, promised in local._promised : name => sum(concat([promised], values(local._slot_mib[name]))) }
  _free     = { for name, used in local._used : name => local._cards[name].vram_mib - used }
  _short    = { for name, free in local._free : name => max(0, -free) }

  # What a slot may take without a change of anything else, and what it takes for its other models anyway.
  _room   = { for id in keys(local._seats) : id => local._free[local._models[id].card] + local._slot_mib[local._models[id].card][local._models[id].slot] }
  _others = { for id in keys(local._seats) : id => max(0, [for other, mib in local._slots[local._models[id].card][local._models[id].slot] : mib if other != id]...) }
}

# Which models can be resident at once: one of each slot.  Every set is told apart while there are few enough to read.

locals {
  _most_sets = 64

  _sets_are_few = { for name, slots in local._slots : name => sum(concat([0], [for seats in values(slots) : log(length(seats), 2)])) < log(local._most_sets, 2) + 0.001 }
  _together = { for name, slots in local._slots : name => [
    for set in try(setproduct(concat([[""], [""]], [for seats in values(slots) : keys(seats)])...), []) : {
      models = [for id in set : id if id != ""]
      mib    = sum([for id in set : id == "" ? 0 : local._seats[id]])
      fits   = local._promised[name] + sum([for id in set : id == "" ? 0 : local._seats[id]]) <= local._cards[name].vram_mib
    }
  ] if local._sets_are_few[name] }
}

# A seat is what one model needs on its card, in whole MiB: the lock's total, or what was measured where that is more.

locals {
  _seat_problem = { for id in keys(local._entries) : id => (
    contains(local._unmeasured, id) ? "it has no measurement" :
    contains(local._other_argv, id) ? "it was measured for another command line" :
    local._total[id] != max(coalesce(local._asked[id], 0), coalesce(local._declared[id], 0)) ? "its measurement does not add up" :
    !can(local._cards[local._models[id].card]) ? "its card is missing or cannot be read" : ""
  ) }
  _unseated = merge(
    { for id in keys(var.models) : id => "its lock entry is missing or stale" if !can(local._entries[id]) },
    { for id, problem in local._seat_problem : id => problem if problem != "" },
  )

  _bytes = { for id, problem in local._seat_problem : id => max(local._total[id], local._measured[id]) if problem == "" }
  _seats = { for id, bytes in local._bytes : id => ceil(bytes / local._mib) }
  _basis = { for id in keys(local._bytes) : id => (
    local._measured[id] > local._total[id] ? "measured" : local._total[id] != local._asked[id] ? "declared" : "predicted"
  ) }
}

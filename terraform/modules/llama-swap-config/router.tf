# Which models llama-swap unloads for a request.  Where no two models of a group may run together, its groups are enough: one of each
# runs.  Otherwise its matrix has every set that may run.  Of those with the requested model llama-swap takes the one for which it
# unloads the fewest models, and of equal ones the first; it unloads before it loads.  A model in no set would run alone.

locals {
  _members = { for id, model in var.models : model.intent.group => id... }
  _strays = sort(setunion(
    [for id, model in var.models : id if length(var.together) > 0 && !contains(flatten([lookup(var.together, model.intent.group, [])]), id)],
    flatten([for group, sets in var.together : [for id in flatten(sets) : id if try(var.models[id].intent.group, null) != group]]),
  ))

  every_model_is_in_a_set_of_its_group = length(local._strays) == 0

  _combines = anytrue([for sets in values(var.together) : anytrue([for ids in sets : length(ids) > 1])])

  # The language of the sets has short names only: "&" binds more tightly than "|", and +GROUP stands for the set of that name.
  _names = { for number, id in keys(var.models) : id => "m${number}" }
  _sets = { for group, sets in var.together : group => join(" | ", [
    for ids in sets : join(" & ", [for id in ids : lookup(local._names, id, "")])
  ]) }
  _all = { for several in length(var.together) > 1 ? ["_all"] : [] : several => join(" & ", [for group in keys(var.together) : "+${group}"]) }

  # As text, because the two have different types.
  router = jsondecode(local._combines ? jsonencode({ use = "matrix", settings = { matrix = {
    vars = { for id, name in local._names : name => id }
    sets = merge(local._sets, local._all)
    } } }) : jsonencode({ use = "group", settings = { groups = { for group, ids in local._members : group => {
      swap       = true
      exclusive  = false
      persistent = false
      members    = ids
  } } } }))
}

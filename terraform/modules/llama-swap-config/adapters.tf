# An adapter has the number of its place on the engine's command line, and a request has the scales of those that it uses; the others
# count as 0.  llama-swap sets them by the name that a request asks for, over whatever the request has: MODEL@VERSION of each
# adapter for the door, which knows the version that serves, and MODEL:NAME for a stack without one, where the first listed serves.

locals {
  _named = { for id, model in var.models : id => { for number, one in model.intent.adapters : number => one if one.name != null } }

  # Adapters without a name are part of every answer.
  _scales = { for id, model in var.models : id => { for chosen in concat(["none"], keys(local._named[id])) : chosen => [
    for number, one in model.intent.adapters : { id = number, scale = one.name == null || tostring(number) == chosen ? one.scale : 0 }
  ] } }

  filters = { for id, model in var.models : id => { setParamsByID = merge(
    { for name in concat([id], model.intent.aliases) : name => { lora = local._scales[id].none } },
    { for name, numbers in { for number, one in local._named[id] : one.name => number... } :
    "${id}:${name}" => { lora = local._scales[id][tostring(min([for number in numbers : tonumber(number)]...))] } },
    { for number, one in local._named[id] : "${id}:${one.name}@${one.version}" => { lora = local._scales[id][number] } },
  ) } if length(local._named[id]) > 0 }
}

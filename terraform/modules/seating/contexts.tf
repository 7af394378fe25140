# The lock holds a ladder of contexts that the engine was asked for, so that a larger or smaller one is looked up.

locals {
  # What a measurement found above the prediction is not assumed to go away with the context.
  _surplus = { for id, bytes in local._bytes : id => bytes - local._total[id] }

  _rungs = { for id, surplus in local._surplus : id => [
    for rung in try(local._vram[id].ladder, []) : {
      context = rung.context
      mib     = ceil((max(rung.gpu_total, coalesce(local._declared[id], 0)) + surplus) / local._mib)
    }
    if try(rung.context > 0 && rung.gpu_total > 0 && rung.context > coalesce(local._models[id].image_max_tokens, 0), false)
  ] }
  _contexts_that_fit = { for id, rungs in local._rungs : id => [
    for rung in rungs : rung.context if max(rung.mib, local._others[id]) <= local._room[id]
  ] }
  _largest_context = { for id, contexts in local._contexts_that_fit : id => try(max(concat(
    contexts,
    max(local._seats[id], local._others[id]) <= local._room[id] ? [local._models[id].context] : [],
  )...), null) }

  # rope-freq-base alone stretches the positions too.  yarn-* only shapes a scaling that one of these turns on.
  _rope_scaled = { for id, model in local._models : id => try(model.args["rope-scaling"], "") != "none" && anytrue([
    can(model.args["rope-scaling"]),
    try(model.args["rope-scale"] > 1, false),
    try(model.args["rope-freq-scale"] > 0 && model.args["rope-freq-scale"] < 1, false),
    try(model.args["rope-freq-base"] > 0, false),
  ]) }
  _beyond_training = [
    for id, model in local._models : "${id} (${model.context}, trained for ${local._vram[id].context_trained})"
    if try(model.context > local._vram[id].context_trained, false) && !local._rope_scaled[id]
  ]

  _context_is_trained = length(local._beyond_training) == 0 ? "" : "Contexts above the trained one: ${join(", ", local._beyond_training)}. Answers degrade beyond it unless RoPE scaling is in args (rope-scaling, rope-scale, rope-freq-scale or rope-freq-base). Lower the context or add the scaling, then run: corral lock"
}

resource "terraform_data" "context_is_trained" {
  lifecycle {
    precondition {
      condition     = local._context_is_trained == ""
      error_message = local._context_is_trained
    }
  }
}

# What is worth a look and must not block.

locals {
  _turing     = "7.5"
  _capability = { for id, model in local._models : id => try(local._cards[model.card].capability, "") }

  _quantised_cache = distinct(flatten([for id, flags in local._flags : [
    for flag in ["cache-type-k", "cache-type-v", "ctk", "ctv"] : id
    if !contains(["f32", "f16", "bf16"], try(flags[flag], "f16")) && local._capability[id] == local._turing
  ]]))
  _bf16_projector = [for id, vram in local._vram : id if try(vram.projector_type, "") == "BF16" && local._capability[id] == local._turing]
  _flash_words    = { for id, flags in local._flags : id => [for flag in ["fa", "flash-attn"] : flags[flag] if can(flags[flag])] }
  _without_flash  = [for id, words in local._flash_words : id if length(words) == 0 || length(setsubtract(words, ["on", "1", "true", "enabled"])) > 0]

  # An intent shows a consumer of JSON by a grammar for every answer, or by a known answer that is JSON.
  _json_consumer = { for id, model in local._models : id => anytrue(concat(
    [for flag in ["json-schema", "json-schema-file", "grammar", "grammar-file"] : can(model.args[flag])],
    [can(keys(jsondecode(model.smoke.expect))), can(tolist(jsondecode(model.smoke.expect)))],
  )) }
  _thinking_before_json = [for id, model in local._models : id if local._json_consumer[id] && model.reasoning == "auto"]

  _least_left  = 512
  _nearly_full = [for name, free in local._free : "${name} (${free} MiB)" if free >= 0 && free < local._least_left]
  _advice = {
    cache_is_fast_on_turing     = length(local._quantised_cache) == 0 ? "" : "Quantised KV cache on compute capability 7.5: ${join(", ", local._quantised_cache)}. Decoding was measured 40 to 70 times slower there; leave cache-type-k and cache-type-v out and lower the context instead."
    projector_is_fast_on_turing = length(local._bf16_projector) == 0 ? "" : "BF16 projector on compute capability 7.5: ${join(", ", local._bf16_projector)}. Turing has no bf16 arithmetic; name an F16 or Q8_0 projector in source.mmproj."
    flash_attention_is_on       = length(local._without_flash) == 0 ? "" : "Flash attention is not on: ${join(", ", local._without_flash)}. Compute buffers take several times the memory without it; relock with this corral, which always turns it on."
    json_without_thinking       = length(local._thinking_before_json) == 0 ? "" : "Asked for JSON with reasoning: auto: ${join(", ", local._thinking_before_json)}. The chat template may think before it answers, at the cost of the answer's tokens; say reasoning: \"off\" (or \"on\", if it is meant)."
    room_is_left                = length(local._nearly_full) == 0 ? "" : "Less than ${local._least_left} MiB left beyond the reserve: ${join(", ", local._nearly_full)}. A tenant that grows by so much takes the next load down."
  }
}

check "cache_is_fast_on_turing" {
  assert {
    condition     = local._advice.cache_is_fast_on_turing == ""
    error_message = local._advice.cache_is_fast_on_turing
  }
}

check "projector_is_fast_on_turing" {
  assert {
    condition     = local._advice.projector_is_fast_on_turing == ""
    error_message = local._advice.projector_is_fast_on_turing
  }
}

check "flash_attention_is_on" {
  assert {
    condition     = local._advice.flash_attention_is_on == ""
    error_message = local._advice.flash_attention_is_on
  }
}

check "json_without_thinking" {
  assert {
    condition     = local._advice.json_without_thinking == ""
    error_message = local._advice.json_without_thinking
  }
}

check "room_is_left" {
  assert {
    condition     = local._advice.room_is_left == ""
    error_message = local._advice.room_is_left
  }
}

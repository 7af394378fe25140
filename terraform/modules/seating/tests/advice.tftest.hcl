# What is told and blocks nothing.  "nothing_is_told_without_a_reason" has the near misses.

variables {
  cards = { t4 = "{vram_mib: 15360, compute_capability: '7.5'}", a2 = "{vram_mib: 15360, compute_capability: '8.6'}" }
}

run "locked" {
  module {
    source = "./tests/locked"
  }

  variables {
    models = {
      quantised = { card = "t4", context = 4096, modalities = ["text"] }
      seeing    = { card = "t4", context = 4096, modalities = ["text", "image"] }
      ampere    = { card = "a2", context = 4096, modalities = ["text", "image"] }
      plain     = { card = "t4", context = 4096, modalities = ["text"] }
      schema    = { card = "t4", context = 4096, modalities = ["text"], args = { json-schema = "{}" } }
      asked     = { card = "t4", context = 4096, modalities = ["text"], smoke = { expect = "{\"verdict\": \"spam\"}" } }
      decided   = { card = "t4", context = 4096, modalities = ["text"], args = { grammar-file = "a.gbnf" }, reasoning = "off" }
      talking   = { card = "t4", context = 4096, modalities = ["text"], smoke = { expect = "42" } }
    }
  }
}

run "nothing_is_told_without_a_reason" {
  command = plan

  variables {
    models = {
      ampere  = { card = "a2", context = 4096, modalities = ["text", "image"] }
      plain   = { card = "t4", context = 4096, modalities = ["text"] }
      decided = { card = "t4", context = 4096, modalities = ["text"], args = { grammar-file = "a.gbnf" }, reasoning = "off" }
      talking = { card = "t4", context = 4096, modalities = ["text"], smoke = { expect = "42" } }
    }
    lock = { version = 1, models = {
      ampere = merge(run.locked.lock.models.ampere, {
        argv = concat(run.locked.lock.models.ampere.argv, ["--cache-type-k", "q8_0"])
        vram = merge(run.locked.lock.models.ampere.vram, {
          argv_sha256    = sha256(jsonencode(concat(run.locked.lock.models.ampere.argv, ["--cache-type-k", "q8_0"])))
          projector_type = "BF16"
        })
      })
      plain = merge(run.locked.lock.models.plain, {
        argv = concat(run.locked.lock.models.plain.argv, ["--cache-type-k", "bf16"])
        vram = merge(run.locked.lock.models.plain.vram, {
          argv_sha256    = sha256(jsonencode(concat(run.locked.lock.models.plain.argv, ["--cache-type-k", "bf16"])))
          projector_type = "F16"
        })
      })
      decided = run.locked.lock.models.decided
      talking = run.locked.lock.models.talking
    } }
  }

  assert {
    condition     = length(output.chart.warnings) == 0
    error_message = "Another card, f16 kinds, a decision about reasoning and a number as answer are all fine."
  }
}

run "a_quantised_cache_on_turing_is_told" {
  command = plan

  variables {
    models = { quantised = { card = "t4", context = 4096, modalities = ["text"] } }
    lock = { version = 1, models = { quantised = merge(run.locked.lock.models.quantised, {
      argv = concat(run.locked.lock.models.quantised.argv, ["--cache-type-v", "q8_0"])
      vram = merge(run.locked.lock.models.quantised.vram, {
        argv_sha256 = sha256(jsonencode(concat(run.locked.lock.models.quantised.argv, ["--cache-type-v", "q8_0"])))
      })
    }) } }
  }

  expect_failures = [check.cache_is_fast_on_turing]
}

run "a_bf16_projector_on_turing_is_told" {
  command = plan

  variables {
    models = { seeing = { card = "t4", context = 4096, modalities = ["text", "image"] } }
    lock = { version = 1, models = { seeing = merge(run.locked.lock.models.seeing, {
      vram = merge(run.locked.lock.models.seeing.vram, { projector_type = "BF16" })
    }) } }
  }

  expect_failures = [check.projector_is_fast_on_turing]
}

run "missing_flash_attention_is_told" {
  command = plan

  variables {
    models = { ampere = { card = "a2", context = 4096, modalities = ["text", "image"] } }
    lock = { version = 1, models = { ampere = merge(run.locked.lock.models.ampere, {
      argv = [for word in run.locked.lock.models.ampere.argv : word if !contains(["-fa", "on"], word)]
      vram = merge(run.locked.lock.models.ampere.vram, {
        argv_sha256 = sha256(jsonencode([for word in run.locked.lock.models.ampere.argv : word if !contains(["-fa", "on"], word)]))
      })
    }) } }
  }

  expect_failures = [check.flash_attention_is_on]
}

run "flash_attention_that_is_turned_off_again_is_told" {
  command = plan

  variables {
    models = { ampere = { card = "a2", context = 4096, modalities = ["text", "image"] } }
    lock = { version = 1, models = { ampere = merge(run.locked.lock.models.ampere, {
      argv = concat(run.locked.lock.models.ampere.argv, ["--flash-attn", "off"])
      vram = merge(run.locked.lock.models.ampere.vram, {
        argv_sha256 = sha256(jsonencode(concat(run.locked.lock.models.ampere.argv, ["--flash-attn", "off"])))
      })
    }) } }
  }

  expect_failures = [check.flash_attention_is_on]
}

run "a_schema_with_reasoning_left_open_is_told" {
  command = plan

  variables {
    models = { schema = { card = "t4", context = 4096, modalities = ["text"], args = { json-schema = "{}" } } }
    lock   = { version = 1, models = { schema = run.locked.lock.models.schema } }
  }

  expect_failures = [check.json_without_thinking]
}

run "a_known_answer_in_json_with_reasoning_left_open_is_told" {
  command = plan

  variables {
    models = { asked = { card = "t4", context = 4096, modalities = ["text"], smoke = { expect = "{\"verdict\": \"spam\"}" } } }
    lock   = { version = 1, models = { asked = run.locked.lock.models.asked } }
  }

  expect_failures = [check.json_without_thinking]
}

run "less_than_512_mib_left_is_told" {
  command = plan

  variables {
    cards  = { t4 = "{vram_mib: 2023}" }
    models = { plain = { card = "t4", context = 4096, modalities = ["text"] } }
    lock   = { version = 1, models = { plain = run.locked.lock.models.plain } }
  }

  expect_failures = [check.room_is_left]
}

# Each run is a catalog with one fault; "the_catalog_passes_without_a_fault" is the same without it, and a fault with a
# near miss has its sibling here.  What the messages say is shown by tools/tests/stack/test_seating.py.

variables {
  cards = {
    t4 = <<-EOT
      vram_mib: 8192
      compute_capability: "7.5"
      tenants:
        desktop: {budget_mib: 900} # nobody's pod
        photos:  {budget_mib: 600, namespace: photos, selector: app=photos}
    EOT
  }
  models = {
    chat  = { card = "t4", context = 4096, modalities = ["text"], aliases = ["triage"] }
    coder = { card = "t4", context = 4096, modalities = ["text"] }
  }
}

run "locked" {
  module {
    source = "./tests/locked"
  }
}

run "the_catalog_passes_without_a_fault" {
  command = plan

  variables {
    lock = run.locked.lock
  }

  assert {
    condition     = length(output.chart.refusals) + length(output.chart.unseated) + length(output.chart.warnings) == 0
    error_message = "Nothing is wrong here, so nothing may be told."
  }
}

run "a_missing_lock_is_refused" {
  command = plan

  expect_failures = [terraform_data.lock_is_fresh]
}

run "an_unknown_lock_version_is_refused" {
  command = plan

  variables {
    lock = merge(run.locked.lock, { version = 2 })
  }

  expect_failures = [terraform_data.lock_is_fresh]
}

run "a_model_without_lock_entry_is_refused" {
  command = plan

  variables {
    lock = { version = 1, models = { chat = run.locked.lock.models.chat } }
  }

  expect_failures = [terraform_data.lock_is_fresh]
}

run "a_changed_intent_is_refused_once" {
  command = plan

  variables {
    lock   = run.locked.lock
    models = { chat = var.models.chat, coder = { card = "nowhere", context = 9999999, modalities = ["text"] } }
  }

  expect_failures = [terraform_data.lock_is_fresh]
}

run "an_entry_without_measurement_is_refused" {
  command = plan

  variables {
    models = { chat = var.models.chat }
    lock = { version = 1, models = { chat = {
      intent_sha256 = run.locked.lock.models.chat.intent_sha256
      argv          = run.locked.lock.models.chat.argv
    } } }
  }

  expect_failures = [terraform_data.every_model_is_measured]
}

run "an_entry_that_is_no_mapping_is_refused" {
  command = plan

  variables {
    models = { chat = var.models.chat }
    lock   = { version = 1, models = { chat = "measured" } }
  }

  expect_failures = [terraform_data.lock_is_fresh]
}

run "rows_that_are_no_numbers_are_refused" {
  command = plan

  variables {
    models = { chat = var.models.chat }
    lock = { version = 1, models = { chat = merge(run.locked.lock.models.chat, {
      vram = merge(run.locked.lock.models.chat.vram, { gpu = { weights = "many", context = null, compute = [], projector = {} } })
    }) } }
  }

  expect_failures = [terraform_data.every_model_is_measured]
}

run "a_measurement_without_its_rules_is_refused" {
  command = plan

  variables {
    models = { chat = var.models.chat }
    lock = { version = 1, models = { chat = merge(run.locked.lock.models.chat, {
      vram = { for key, value in run.locked.lock.models.chat.vram : key => value if key != "rules" }
    }) } }
  }

  expect_failures = [terraform_data.every_model_is_measured]
}

run "an_unmeasured_model_without_declaration_is_refused" {
  command = plan

  variables {
    models = { chat = var.models.chat }
    lock = { version = 1, models = { chat = merge(run.locked.lock.models.chat, {
      vram = { argv_sha256 = run.locked.lock.models.chat.vram.argv_sha256, unmeasured = "it crashed", gpu_total = 1048576 }
    }) } }
  }

  expect_failures = [terraform_data.every_model_is_measured]
}

run "a_total_below_its_rows_is_refused" {
  command = plan

  variables {
    models = { chat = var.models.chat }
    lock = { version = 1, models = { chat = merge(run.locked.lock.models.chat, {
      vram = merge(run.locked.lock.models.chat.vram, { gpu_total = 999 * 1048576 })
    }) } }
  }

  expect_failures = [terraform_data.measurement_adds_up]
}

run "an_argv_edited_by_hand_is_refused" {
  command = plan

  variables {
    models = { chat = var.models.chat }
    lock = { version = 1, models = { chat = merge(run.locked.lock.models.chat, {
      argv = concat(run.locked.lock.models.chat.argv, ["--ubatch-size", "2048"])
    }) } }
  }

  expect_failures = [terraform_data.measurement_belongs_to_argv]
}

run "a_measurement_without_the_digest_of_its_argv_is_refused" {
  command = plan

  variables {
    models = { chat = var.models.chat }
    lock = { version = 1, models = { chat = merge(run.locked.lock.models.chat, {
      vram = { for key, value in run.locked.lock.models.chat.vram : key => value if key != "argv_sha256" }
    }) } }
  }

  expect_failures = [terraform_data.measurement_belongs_to_argv]
}

run "a_declaration_below_the_measurement_is_refused" {
  command = plan

  variables {
    models = { chat = var.models.chat }
    lock = { version = 1, models = { chat = merge(run.locked.lock.models.chat, {
      vram = merge(run.locked.lock.models.chat.vram, { declared = { mib = 999, why = "hope" } })
    }) } }
  }

  expect_failures = [terraform_data.declaration_covers_measurement]
}

run "a_declaration_equal_to_the_measurement_passes" {
  command = plan

  variables {
    models = { chat = var.models.chat }
    lock = { version = 1, models = { chat = merge(run.locked.lock.models.chat, {
      vram = merge(run.locked.lock.models.chat.vram, { declared = { mib = 1000, why = "read from its log" } })
    }) } }
  }

  assert {
    condition     = output.seats.chat == 1000
    error_message = "A declaration may repeat what was measured."
  }
}

run "locked_on_a_card_that_does_not_exist" {
  module {
    source = "./tests/locked"
  }

  variables {
    models = { chat = { card = "t40", context = 4096, modalities = ["text"] } }
  }
}

run "a_card_that_does_not_exist_is_refused" {
  command = plan

  variables {
    models = { chat = { card = "t40", context = 4096, modalities = ["text"] } }
    lock   = run.locked_on_a_card_that_does_not_exist.lock
  }

  expect_failures = [terraform_data.every_model_has_a_card]
}

run "a_catalog_without_cards_is_refused" {
  command = plan

  variables {
    cards = {}
    lock  = run.locked.lock
  }

  expect_failures = [terraform_data.every_model_has_a_card]
}

run "a_card_that_is_no_yaml_is_refused" {
  command = plan

  variables {
    cards = { t4 = "vram_mib: [" }
    lock  = run.locked.lock
  }

  expect_failures = [terraform_data.cards_are_readable]
}

run "a_card_without_its_size_is_refused" {
  command = plan

  variables {
    cards = { t4 = "reserve_mib: 512" }
    lock  = run.locked.lock
  }

  expect_failures = [terraform_data.cards_are_readable]
}

run "a_card_with_a_size_in_words_is_refused" {
  command = plan

  variables {
    cards = { t4 = "vram_mib: 15360 MiB" }
    lock  = run.locked.lock
  }

  expect_failures = [terraform_data.cards_are_readable]
}

run "a_tenant_without_budget_is_refused" {
  command = plan

  variables {
    cards = { t4 = "{vram_mib: 8192, tenants: {desktop: {namespace: photos}}}" }
    lock  = run.locked.lock
  }

  expect_failures = [terraform_data.cards_are_readable]
}

run "tenants_without_names_are_refused" {
  command = plan

  variables {
    cards = { t4 = "{vram_mib: 8192, tenants: [{budget_mib: 5}]}" }
    lock  = run.locked.lock
  }

  expect_failures = [terraform_data.cards_are_readable]
}

run "locked_beyond_training" {
  module {
    source = "./tests/locked"
  }

  variables {
    models = { chat = { card = "t4", context = 40961, modalities = ["text"], args = { rope-scaling = "none", yarn-orig-ctx = 32768, rope-scale = 2 } } }
  }
}

run "a_context_above_the_trained_one_is_refused" {
  command = plan

  variables {
    models = { chat = { card = "t4", context = 40961, modalities = ["text"], args = { rope-scaling = "none", yarn-orig-ctx = 32768, rope-scale = 2 } } }
    lock   = run.locked_beyond_training.lock
  }

  expect_failures = [terraform_data.context_is_trained]
}

run "locked_with_a_factor_of_1" {
  module {
    source = "./tests/locked"
  }

  variables {
    models = { chat = { card = "t4", context = 40961, modalities = ["text"], args = { rope-scale = 1 } } }
  }
}

run "a_factor_of_1_is_no_rope_scaling" {
  command = plan

  variables {
    models = { chat = { card = "t4", context = 40961, modalities = ["text"], args = { rope-scale = 1 } } }
    lock   = run.locked_with_a_factor_of_1.lock
  }

  expect_failures = [terraform_data.context_is_trained]
}

run "locked_with_rope_scaling" {
  module {
    source = "./tests/locked"
  }

  variables {
    models = {
      base   = { card = "t4", context = 81920, modalities = ["text"], args = { rope-freq-base = 1000000 } }
      factor = { card = "t4", context = 81920, modalities = ["text"], args = { rope-scale = 2 } }
      freq   = { card = "t4", context = 81920, modalities = ["text"], args = { rope-freq-scale = 0.5 } }
      yarn   = { card = "t4", context = 81920, modalities = ["text"], args = { rope-scaling = "yarn" } }
    }
  }
}

run "a_context_above_the_trained_one_passes_with_rope_scaling" {
  command = plan

  variables {
    models = {
      base   = { card = "t4", context = 81920, modalities = ["text"], args = { rope-freq-base = 1000000 } }
      factor = { card = "t4", context = 81920, modalities = ["text"], args = { rope-scale = 2 } }
      freq   = { card = "t4", context = 81920, modalities = ["text"], args = { rope-freq-scale = 0.5 } }
      yarn   = { card = "t4", context = 81920, modalities = ["text"], args = { rope-scaling = "yarn" } }
    }
    lock = run.locked_with_rope_scaling.lock
  }

  assert {
    condition     = length(output.seats) == 4
    error_message = "Each way of scaling RoPE must do."
  }
}

run "locked_at_the_trained_context" {
  module {
    source = "./tests/locked"
  }

  variables {
    models = { chat = { card = "t4", context = 40960, modalities = ["text"] } }
  }
}

run "the_trained_context_itself_passes" {
  command = plan

  variables {
    models = { chat = { card = "t4", context = 40960, modalities = ["text"] } }
    lock   = run.locked_at_the_trained_context.lock
  }

  assert {
    condition     = output.seats.chat == 1000
    error_message = "A model may use all that it was trained for."
  }
}

run "a_ledger_of_another_version_is_refused" {
  command = plan

  variables {
    lock     = run.locked.lock
    measured = { version = 2, measurements = [] }
  }

  expect_failures = [terraform_data.ledger_is_readable]
}

run "a_record_without_bytes_is_refused" {
  command = plan

  variables {
    lock     = run.locked.lock
    measured = { version = 1, measurements = [{ model = "chat", argv_sha256 = "ab", device = "Tesla T4", gpu_bytes = null }] }
  }

  expect_failures = [terraform_data.ledger_is_readable]
}

run "a_record_without_a_device_is_refused" {
  command = plan

  variables {
    lock     = run.locked.lock
    measured = { version = 1, measurements = [{ model = "chat", argv_sha256 = "ab", device = "", gpu_bytes = 5 }] }
  }

  expect_failures = [terraform_data.ledger_is_readable]
}

run "an_empty_ledger_passes" {
  command = plan

  variables {
    lock     = run.locked.lock
    measured = { version = 1, measurements = [] }
  }

  assert {
    condition     = output.seats.chat == 1000
    error_message = "Nothing was measured yet, and that is no fault."
  }
}

# What does not fit is refused on its own card; the remedies are shown to work by tools/tests/stack/test_seating.py.

variables {
  models = {
    chat = { card = "small", context = 4096, modalities = ["text"] }
  }
}

run "locked" {
  module {
    source = "./tests/locked"
  }
}

run "a_card_that_is_full_to_the_last_mib_fits" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { small = "{vram_mib: 2000, reserve_mib: 400, tenants: {desktop: {budget_mib: 600}}}" }
  }

  expect_failures = [check.room_is_left]
}

run "one_mib_more_is_refused" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { small = "{vram_mib: 2000, reserve_mib: 400, tenants: {desktop: {budget_mib: 601}}}" }
  }

  expect_failures = [terraform_data.card_holds_its_set]
}

run "a_reserve_that_nobody_wrote_counts_all_the_same" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { small = "vram_mib: 1511" }
  }

  expect_failures = [terraform_data.card_holds_its_set]
}

run "a_measurement_above_the_prediction_is_refused_where_it_does_not_fit" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { small = "{vram_mib: 2100, reserve_mib: 0}" }
    measured = { version = 1, measurements = [
      { model = "chat", argv_sha256 = run.locked.lock.models.chat.vram.argv_sha256, device = "Tesla T4", gpu_bytes = 2200 * 1048576 },
    ] }
  }

  expect_failures = [terraform_data.card_holds_its_set]
}

run "the_same_card_holds_what_was_predicted" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { small = "{vram_mib: 2100, reserve_mib: 0}" }
  }

  assert {
    condition     = output.chart.cards.small.fits && output.chart.cards.small.free_mib == 1100
    error_message = "Without the measurement there is room."
  }
}

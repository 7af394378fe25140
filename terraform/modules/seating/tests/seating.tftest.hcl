# Who sits where, and what is left.  A card of 15360 MiB with three tenants, and models in two slots.

variables {
  cards = {
    t4 = <<-EOT
      vram_mib: 15360
      compute_capability: "7.5"
      tenants:
        immich-ml:     {budget_mib: 2100, namespace: immich, selector: app=immich-machine-learning}
        immich-server: {budget_mib: 1200, namespace: immich, selector: app=immich-server}
        frigate:       {budget_mib: 2300, namespace: frigate, selector: app=frigate}
    EOT
  }
  models = {
    qwen3-8b   = { card = "t4", context = 16384, modalities = ["text"] }
    qwen3vl-8b = { card = "t4", context = 3072, modalities = ["text", "image"] }
    tiny       = { card = "t4", context = 4096, modalities = ["text"], slot = "side" }
  }
  needs = {
    qwen3-8b   = 6996
    qwen3vl-8b = 6717
    tiny       = 900
  }
  ladders = {
    qwen3-8b = { 8192 = 5800, 16384 = 6996, 32768 = 9300, 40960 = 10500 }
    tiny     = { 2048 = 800, 8192 = 1000 }
  }
}

run "locked" {
  module {
    source = "./tests/locked"
  }
}

run "locked_in_one_slot" {
  module {
    source = "./tests/locked"
  }

  variables {
    models = {
      qwen3-8b = var.models.qwen3-8b
      tiny     = { card = "t4", context = 4096, modalities = ["text"] }
    }
  }
}

run "locked_on_two_cards" {
  module {
    source = "./tests/locked"
  }

  variables {
    models = { one = { card = "a", context = 1, modalities = ["text"] }, two = { card = "b", context = 1, modalities = ["text"] } }
  }
}

run "a_slot_takes_what_its_largest_model_takes" {
  command = plan

  variables {
    lock = run.locked.lock
  }

  assert {
    condition = output.chart.cards.t4.slots == {
      main = { mib = 6996, models = { qwen3-8b = 6996, qwen3vl-8b = 6717 } }
      side = { mib = 900, models = { tiny = 900 } }
    }
    error_message = "Of the models of a slot one is resident at a time, so the largest one decides."
  }
}

run "slots_tenants_and_reserve_are_summed" {
  command = plan

  variables {
    lock = run.locked.lock
  }

  assert {
    condition = (
      output.chart.cards.t4.tenants == { frigate = 2300, immich-ml = 2100, immich-server = 1200 }
      && output.chart.cards.t4.reserve_mib == 512
      && output.chart.cards.t4.used_mib == 6996 + 900 + 2300 + 2100 + 1200 + 512
      && output.chart.cards.t4.free_mib == 15360 - 14008
      && output.chart.cards.t4.fits
    )
    error_message = "Everyone on the card must be in the sum, and the rest is free."
  }
}

run "the_seats_are_told_by_model" {
  command = plan

  variables {
    lock = run.locked.lock
  }

  assert {
    condition     = output.seats == { qwen3-8b = 6996, qwen3vl-8b = 6717, tiny = 900 }
    error_message = "Every model must have its seat in MiB."
  }
}

run "a_seat_is_rounded_up_to_a_whole_mib" {
  command = plan

  variables {
    models = { tiny = var.models.tiny }
    lock = { version = 1, models = { tiny = merge(run.locked.lock.models.tiny, {
      vram = merge(run.locked.lock.models.tiny.vram, {
        gpu_total = 900 * 1048576 + 1
        gpu       = merge(run.locked.lock.models.tiny.vram.gpu, { projector = 1 })
      })
    }) } }
  }

  assert {
    condition     = output.seats.tiny == 901
    error_message = "One byte more is one MiB more."
  }
}

run "the_largest_context_in_the_room_that_is_left_is_looked_up" {
  command = plan

  variables {
    lock = run.locked.lock
  }

  assert {
    condition = (
      output.chart.models.qwen3-8b.largest_context == 16384
      && output.chart.models.qwen3vl-8b.largest_context == 3072
      && output.chart.models.tiny.largest_context == 8192
    )
    error_message = "1352 MiB are left: not enough for 32768 tokens of qwen3-8b, enough for 8192 of tiny."
  }
}

run "a_model_may_grow_into_what_its_slot_takes_anyway" {
  command = plan

  variables {
    cards = { t4 = "{vram_mib: 7600, reserve_mib: 0}" }
    models = {
      qwen3-8b = var.models.qwen3-8b
      tiny     = { card = "t4", context = 4096, modalities = ["text"] }
    }
    lock = run.locked_in_one_slot.lock
  }

  assert {
    condition     = output.chart.cards.t4.free_mib == 604 && output.chart.models.tiny.largest_context == 8192
    error_message = "The slot's largest model leaves 6096 MiB more to its smaller one."
  }
}

run "what_fits_together_is_told_set_by_set" {
  command = plan

  variables {
    lock = run.locked.lock
  }

  assert {
    condition = output.chart.cards.t4.together == [
      { models = ["qwen3-8b", "tiny"], mib = 7896, fits = true },
      { models = ["qwen3vl-8b", "tiny"], mib = 7617, fits = true },
    ]
    error_message = "One model of each slot can be resident beside the others."
  }
}

run "a_measurement_counts_where_it_is_larger" {
  command = plan

  variables {
    lock = run.locked.lock
    measured = { version = 1, measurements = [
      { model = "qwen3-8b", argv_sha256 = run.locked.lock.models.qwen3-8b.vram.argv_sha256, device = "Tesla T4", gpu_bytes = 7100 * 1048576 + 1 },
      { model = "tiny", argv_sha256 = run.locked.lock.models.tiny.vram.argv_sha256, device = "Tesla T4", gpu_bytes = 800 * 1048576 },
    ] }
  }

  assert {
    condition     = output.seats.qwen3-8b == 7101 && output.chart.models.qwen3-8b.basis == "measured"
    error_message = "A loaded model that took more than predicted must be seated at what it took."
  }

  assert {
    condition     = output.seats.tiny == 900 && output.chart.models.tiny.basis == "predicted" && output.chart.models.tiny.measured_mib == 800
    error_message = "One that took less must keep its prediction, and show what was measured."
  }
}

run "there_is_room_for_the_next_context_on_a_larger_card" {
  command = plan

  variables {
    cards = { t4 = replace(var.cards.t4, "15360", "17000") }
    lock  = run.locked.lock
  }

  assert {
    condition     = output.chart.models.qwen3-8b.largest_context == 32768
    error_message = "2992 MiB are left, and 2304 more are needed."
  }
}

run "what_was_measured_above_the_prediction_is_kept_for_every_context" {
  command = plan

  variables {
    cards = { t4 = replace(var.cards.t4, "15360", "17000") }
    lock  = run.locked.lock
    measured = { version = 1, measurements = [
      { model = "qwen3-8b", argv_sha256 = run.locked.lock.models.qwen3-8b.vram.argv_sha256, device = "Tesla T4", gpu_bytes = 7796 * 1048576 },
    ] }
  }

  assert {
    condition     = output.chart.models.qwen3-8b.largest_context == 16384
    error_message = "A larger context takes the 800 MiB that nobody predicted as well."
  }
}

run "a_measurement_of_another_argv_or_without_a_gpu_does_not_count" {
  command = plan

  variables {
    lock = run.locked.lock
    measured = { version = 1, measurements = [
      { model = "qwen3-8b", argv_sha256 = sha256("another"), device = "Tesla T4", gpu_bytes = 9000 * 1048576 },
      { model = "qwen3-8b", argv_sha256 = run.locked.lock.models.qwen3-8b.vram.argv_sha256, device = "Intel(R) Xeon(R) CPU", gpu_bytes = 9000 * 1048576 },
      { model = "tiny", argv_sha256 = run.locked.lock.models.qwen3-8b.vram.argv_sha256, device = "Tesla T4", gpu_bytes = 9000 * 1048576 },
    ] }
  }

  assert {
    condition     = output.seats == { qwen3-8b = 6996, qwen3vl-8b = 6717, tiny = 900 }
    error_message = "A record speaks for its own argv, and only when it ran on a GPU."
  }
}

run "a_declaration_above_the_measurement_counts_and_is_called_so" {
  command = plan

  variables {
    models = { tiny = var.models.tiny }
    lock = { version = 1, models = { tiny = merge(run.locked.lock.models.tiny, {
      vram = merge(run.locked.lock.models.tiny.vram, { gpu_total = 2000 * 1048576, declared = { mib = 2000, why = "loads adapters" } })
    }) } }
  }

  assert {
    condition     = output.seats.tiny == 2000 && output.chart.models.tiny.basis == "declared"
    error_message = "The larger number counts, and where it comes from must be told."
  }
}

run "a_model_that_the_engine_cannot_measure_sits_where_it_is_declared" {
  command = plan

  variables {
    models = { tiny = var.models.tiny }
    lock = { version = 1, models = { tiny = merge(run.locked.lock.models.tiny, {
      vram = {
        argv_sha256 = run.locked.lock.models.tiny.vram.argv_sha256
        unmeasured  = "unknown architecture"
        gpu_total   = 2000 * 1048576
        declared    = { mib = 2000, why = "read from its log" }
      }
    }) } }
  }

  assert {
    condition     = output.seats.tiny == 2000 && output.chart.models.tiny.basis == "declared"
    error_message = "A declaration stands in where there is no measurement."
  }

  assert {
    condition     = output.chart.models.tiny.largest_context == 4096
    error_message = "Without a ladder only the context that was declared for is known to fit."
  }
}

run "cards_are_seated_apart" {
  command = plan

  variables {
    cards  = { a = "vram_mib: 2600", b = "{vram_mib: 2500, reserve_mib: 0, tenants: {desktop: {budget_mib: 500}}}" }
    models = { one = { card = "a", context = 1, modalities = ["text"] }, two = { card = "b", context = 1, modalities = ["text"] } }
    lock   = run.locked_on_two_cards.lock
  }

  assert {
    condition     = output.chart.cards.a.free_mib == 1088 && output.chart.cards.b.free_mib == 1000
    error_message = "Each card has its own sum."
  }
}

run "a_card_without_models_is_all_for_its_tenants" {
  command = plan

  variables {
    cards  = { a = "vram_mib: 2600", b = "vram_mib: 4096" }
    models = { one = { card = "a", context = 1, modalities = ["text"] } }
    lock   = { version = 1, models = { one = run.locked_on_two_cards.lock.models.one } }
  }

  assert {
    condition     = output.chart.cards.b.free_mib == 3584 && output.chart.cards.b.fits && output.chart.cards.b.slots == {}
    error_message = "A card may have no models."
  }
}

# Who sits where, and what is left.  A card of 15360 MiB with three tenants, and models in two groups.

variables {
  cards = {
    t4 = {
      vram_mib    = 15360
      reserve_mib = 512
      tenants     = { immich-ml = { budget_mib = 2100 }, immich-server = { budget_mib = 1200 }, frigate = { budget_mib = 2300 } }
    }
  }
  models = {
    qwen3-8b   = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 7335837696 } } # 6996 MiB
    qwen3vl-8b = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 7043284992 } } # 6717 MiB
    tiny       = { intent = { card = "t4", group = "side" }, predicted = { gpu_bytes = 943718400 } }  # 900 MiB
  }
}

run "a_group_takes_what_its_largest_model_takes" {
  command = plan

  assert {
    condition = jsonencode(output.chart.cards.t4.groups) == jsonencode({
      main = { mib = 6996, models = { qwen3-8b = 6996, qwen3vl-8b = 6717 }, sets = [["qwen3-8b"], ["qwen3vl-8b"]] }
      side = { mib = 900, models = { tiny = 900 }, sets = [["tiny"]] }
    })
    error_message = "Of the models of a group one is resident at a time, so the largest one decides."
  }
}

run "groups_tenants_and_reserve_are_summed" {
  command = plan

  assert {
    condition = jsonencode({ for key, value in output.chart.cards.t4 : key => value if key != "groups" }) == jsonencode({
      vram_mib    = 15360
      reserve_mib = 512
      tenants     = { frigate = 2300, immich-ml = 2100, immich-server = 1200 }
      used_mib    = 6996 + 900 + 2300 + 2100 + 1200 + 512
      free_mib    = 15360 - 14008
      short_mib   = 0
    })
    error_message = "Everything on the card must be in the sum, and the rest is free."
  }
}

run "the_seats_are_listed_by_model" {
  command = plan

  assert {
    condition     = output.seats == { qwen3-8b = 6996, qwen3vl-8b = 6717, tiny = 900 }
    error_message = "Every model must have its seat in MiB."
  }

  assert {
    condition     = jsonencode(output.chart.models.tiny) == jsonencode({ card = "t4", group = "side", mib = 900, basis = "predicted" })
    error_message = "The chart must have each model's place, seat, and where that is from."
  }
}

run "a_seat_is_rounded_up_to_a_whole_mib" {
  command = plan

  variables {
    models = { tiny = { intent = { card = "t4", group = "side" }, predicted = { gpu_bytes = 943718401 } } }
  }

  assert {
    condition     = output.seats.tiny == 901
    error_message = "One byte more is one MiB more."
  }
}

run "the_largest_of_three_figures_counts_and_gives_the_basis" {
  command = plan

  variables {
    models = {
      declared  = { intent = { card = "t4", group = "a", vram = { declared_mib = 12 } }, predicted = { gpu_bytes = 10485760 }, measured = { gpu_bytes = 11534336 } }
      measured  = { intent = { card = "t4", group = "b", vram = { declared_mib = 11 } }, predicted = { gpu_bytes = 10485760 }, measured = { gpu_bytes = 13631489 } }
      predicted = { intent = { card = "t4", group = "c", vram = { declared_mib = 11 } }, predicted = { gpu_bytes = 15728640 }, measured = { gpu_bytes = 11534336 } }
    }
  }

  assert {
    condition     = output.seats == { declared = 12, measured = 14, predicted = 15 } && alltrue([for id, model in output.chart.models : model.basis == id])
    error_message = "The largest figure must count, and the chart name it."
  }
}

run "of_equal_figures_the_prediction_gives_the_basis_and_then_the_declaration" {
  command = plan

  variables {
    models = {
      declared  = { intent = { card = "t4", group = "a", vram = { declared_mib = 10 } }, predicted = { gpu_bytes = 1 }, measured = { gpu_bytes = 10485760 } }
      predicted = { intent = { card = "t4", group = "b", vram = { declared_mib = 10 } }, predicted = { gpu_bytes = 10485760 }, measured = { gpu_bytes = 10485760 } }
    }
  }

  assert {
    condition     = alltrue([for id, model in output.chart.models : model.basis == id && model.mib == 10])
    error_message = "A measurement that confirms a figure does not take its name."
  }
}

run "a_model_that_the_engine_cannot_predict_sits_where_it_is_declared" {
  command = plan

  variables {
    models = { tiny = { intent = { card = "t4", group = "side", vram = { declared_mib = 2000 } }, predicted = { gpu_bytes = null }, measured = null } }
  }

  assert {
    condition     = output.seats.tiny == 2000 && output.chart.models.tiny.basis == "declared"
    error_message = "A declaration stands in where there is no prediction."
  }
}

run "cards_are_seated_apart" {
  command = plan

  variables {
    cards = {
      a = { vram_mib = 2600, reserve_mib = 512, tenants = {} }
      b = { vram_mib = 2500, reserve_mib = 0, tenants = { desktop = { budget_mib = 500 } } }
      c = { vram_mib = 4096, reserve_mib = 512, tenants = {} }
    }
    models = {
      one = { intent = { card = "a", group = "main" }, predicted = { gpu_bytes = 1048576000 } }
      two = { intent = { card = "b", group = "main" }, predicted = { gpu_bytes = 1048576000 } }
    }
  }

  assert {
    condition     = output.chart.cards.a.free_mib == 1088 && output.chart.cards.b.free_mib == 1000
    error_message = "Each card has its own sum."
  }

  assert {
    condition     = output.chart.cards.c.free_mib == 3584 && length(output.chart.cards.c.groups) == 0
    error_message = "A card may have no models."
  }
}

run "a_set_that_fits_exactly_is_accepted" {
  command = plan

  variables {
    cards = { t4 = { vram_mib = 8408, reserve_mib = 512, tenants = {} } }
  }

  assert {
    condition     = output.chart.cards.t4.free_mib == 0 && output.chart.cards.t4.short_mib == 0
    error_message = "What is full is not short."
  }
}

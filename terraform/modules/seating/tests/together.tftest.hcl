# Which models run at the same time.  1 MiB is 1048576 bytes; a card of 10000 MiB has no reserve and no tenants.

variables {
  cards = { t4 = { vram_mib = 10000, reserve_mib = 0, tenants = {} } }
}

run "a_small_model_runs_beside_each_large_one_with_which_it_fits" {
  command = plan

  variables {
    models = {
      coder = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 9000 * 1048576 } }
      chat  = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 7000 * 1048576 } }
      eyes  = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 2000 * 1048576 } }
      tiny  = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 1000 * 1048576 } }
    }
  }

  assert {
    condition     = jsonencode(output.together) == jsonencode({ t4 = { main = [["chat", "eyes", "tiny"], ["coder", "tiny"]] } })
    error_message = "Every set that fits must be there, to the last MiB, the largest first."
  }
}

run "what_the_reserve_and_the_tenants_have_is_not_left_for_models" {
  command = plan

  variables {
    cards = { t4 = { vram_mib = 10000, reserve_mib = 400, tenants = { immich = { budget_mib = 601 } } } }
    models = {
      chat = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 7000 * 1048576 } }
      eyes = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 2000 * 1048576 } }
    }
  }

  assert {
    condition     = jsonencode(output.together) == jsonencode({ t4 = { main = [["chat"], ["eyes"]] } })
    error_message = "One MiB is missing."
  }
}

run "on_a_card_with_nothing_free_small_models_share_the_seat_of_the_large_one" {
  command = plan

  variables {
    cards = { t4 = { vram_mib = 7000, reserve_mib = 0, tenants = {} } }
    models = {
      chat  = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 7000 * 1048576 } }
      eyes  = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 3000 * 1048576 } }
      embed = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 4000 * 1048576 } }
    }
  }

  assert {
    condition     = output.chart.cards.t4.free_mib == 0 && jsonencode(output.together) == jsonencode({ t4 = { main = [["chat"], ["embed", "eyes"]] } })
    error_message = "The seat of the largest is theirs too."
  }
}

run "one_model_is_one_set" {
  command = plan

  variables {
    models = { chat = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 7000 * 1048576 } } }
  }

  assert {
    condition     = jsonencode(output.together) == jsonencode({ t4 = { main = [["chat"]] } })
    error_message = "It has the card for itself."
  }
}

run "a_card_without_models_has_no_sets" {
  command = plan

  variables {
    models = {}
  }

  assert {
    condition     = length(output.together.t4) == 0
    error_message = "There is nothing to run."
  }
}

run "models_that_all_fit_are_one_set" {
  command = plan

  variables {
    models = { for number in range(12) : format("model-%02d", number) => { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 833 * 1048576 } } }
  }

  assert {
    condition     = length(output.together.t4.main) == 1 && length(output.together.t4.main[0]) == 12
    error_message = "Twelve of 833 MiB are 9996."
  }
}

run "as_many_models_as_are_combined_with_equal_seats_form_924_sets" {
  command = plan

  variables {
    models = { for number in range(12) : format("model-%02d", number) => { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 1500 * 1048576 } } }
  }

  assert {
    condition     = length(output.together.t4.main) == 924 && alltrue([for ids in output.together.t4.main : length(ids) == 6])
    error_message = "Six of twelve fit: 924 sets, which llama-swap accepts."
  }

  assert {
    condition     = length(distinct(output.together.t4.main)) == 924
    error_message = "No set may stand twice."
  }
}

run "with_one_model_more_than_are_combined_one_of_each_group_runs_and_a_warning_states_why" {
  command = plan

  variables {
    models = { for number in range(13) : format("model-%02d", number) => {
      intent = { card = "t4", group = number < 7 ? "main" : "side" }, predicted = { gpu_bytes = 1048576 }
    } }
  }

  expect_failures = [check.models_are_few_enough_to_combine]

  assert {
    condition     = alltrue([for sets in values(output.together.t4) : alltrue([for ids in sets : length(ids) == 1])]) && length(output.together.t4.main) == 7
    error_message = "All would fit, and none may be combined."
  }

  assert {
    condition     = join(",", local._crowded_cards) == "t4"
    error_message = "The warning must name the card."
  }
}

run "sixty_models_take_no_longer_because_none_are_combined" {
  command = plan

  variables {
    models = { for number in range(60) : format("model-%02d", number) => { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 1048576 } } }
  }

  expect_failures = [check.models_are_few_enough_to_combine]

  assert {
    condition     = length(output.together.t4.main) == 60
    error_message = "Each model must be a set."
  }
}

run "a_crowded_card_leaves_the_others_alone" {
  command = plan

  variables {
    cards = { t4 = { vram_mib = 10000, reserve_mib = 0, tenants = {} }, p40 = { vram_mib = 24576, reserve_mib = 0, tenants = {} } }
    models = { for number in range(15) : format("model-%02d", number) => {
      intent = { card = number < 13 ? "t4" : "p40", group = "main" }, predicted = { gpu_bytes = 1048576 }
    } }
  }

  expect_failures = [check.models_are_few_enough_to_combine]

  assert {
    condition     = jsonencode(output.together.p40) == jsonencode({ main = [["model-13", "model-14"]] }) && length(output.together.t4.main) == 13
    error_message = "Each card has its own count."
  }
}

run "a_group_keeps_its_seat_and_what_is_left_goes_to_the_one_that_needs_least_for_all_its_models" {
  command = plan

  variables {
    models = {
      # main takes 5000 and lacks 4500 for both, eyes takes 2000 and lacks 1500; 3000 are left.
      coder     = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 5000 * 1048576 } }
      chat      = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 3000 * 1048576 } }
      draft     = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 1500 * 1048576 } }
      eyes      = { intent = { card = "t4", group = "eyes" }, predicted = { gpu_bytes = 2000 * 1048576 } }
      eyes-fast = { intent = { card = "t4", group = "eyes" }, predicted = { gpu_bytes = 1500 * 1048576 } }
    }
  }

  assert {
    condition     = jsonencode(output.together) == jsonencode({ t4 = { eyes = [["eyes", "eyes-fast"]], main = [["coder", "draft"], ["chat", "draft"]] } })
    error_message = "eyes gets its 1500, and main the other 1500."
  }
}

run "what_is_left_is_given_once" {
  command = plan

  variables {
    models = {
      a-large = { intent = { card = "t4", group = "a" }, predicted = { gpu_bytes = 4000 * 1048576 } }
      a-small = { intent = { card = "t4", group = "a" }, predicted = { gpu_bytes = 2000 * 1048576 } }
      b-large = { intent = { card = "t4", group = "b" }, predicted = { gpu_bytes = 4000 * 1048576 } }
      b-small = { intent = { card = "t4", group = "b" }, predicted = { gpu_bytes = 2000 * 1048576 } }
    }
  }

  assert {
    condition     = jsonencode(output.together) == jsonencode({ t4 = { a = [["a-large", "a-small"]], b = [["b-large"], ["b-small"]] } })
    error_message = "Of two that need as much the first by name has it."
  }
}

run "a_card_that_is_short_combines_nothing_beyond_the_seats_of_its_groups" {
  command = plan

  variables {
    cards = { t4 = { vram_mib = 6999, reserve_mib = 0, tenants = {} } }
    models = {
      chat = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 7000 * 1048576 } }
      eyes = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 3000 * 1048576 } }
    }
  }

  expect_failures = [output.seats]

  assert {
    condition     = jsonencode(local.together) == jsonencode({ t4 = { main = [["chat"], ["eyes"]] } })
    error_message = "It is refused by its sum, as before."
  }
}

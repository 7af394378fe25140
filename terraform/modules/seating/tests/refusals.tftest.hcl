# What is refused.  The siblings that pass are in seating.tftest.hcl; the sentence is tested by tools/tests/stack/test_render.py.

variables {
  cards  = { t4 = { vram_mib = 8408, reserve_mib = 512, tenants = { frigate = { budget_mib = 900 } } } }
  models = { qwen3-8b = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 7335837696 } } } # 6996 MiB
}

run "one_mib_too_much_in_a_model_is_refused" {
  command = plan

  variables {
    models = { qwen3-8b = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 7335837697 } } }
  }

  expect_failures = [output.seats]

  assert {
    condition     = join(",", local._short_cards) == "t4"
    error_message = "not by the rule card_holds_its_set"
  }
}

run "one_mib_too_much_for_a_tenant_is_refused" {
  command = plan

  variables {
    cards = { t4 = { vram_mib = 8408, reserve_mib = 512, tenants = { frigate = { budget_mib = 901 } } } }
  }

  expect_failures = [output.seats]

  assert {
    condition     = join(",", local._short_cards) == "t4"
    error_message = "not by the rule card_holds_its_set"
  }
}

run "one_mib_too_much_in_reserve_is_refused" {
  command = plan

  variables {
    cards = { t4 = { vram_mib = 8408, reserve_mib = 513, tenants = { frigate = { budget_mib = 900 } } } }
  }

  expect_failures = [output.seats]

  assert {
    condition     = join(",", local._short_cards) == "t4"
    error_message = "not by the rule card_holds_its_set"
  }
}

run "a_second_group_that_does_not_fit_beside_the_first_is_refused" {
  command = plan

  variables {
    models = {
      qwen3-8b = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 7335837696 } }
      tiny     = { intent = { card = "t4", group = "side" }, predicted = { gpu_bytes = 1 } }
    }
  }

  expect_failures = [output.seats]

  assert {
    condition     = join(",", local._short_cards) == "t4"
    error_message = "not by the rule card_holds_its_set"
  }
}

run "only_the_card_that_is_short_is_refused" {
  command = plan

  variables {
    cards = {
      p40 = { vram_mib = 24576, reserve_mib = 512, tenants = {} }
      t4  = { vram_mib = 4096, reserve_mib = 512, tenants = {} }
    }
  }

  expect_failures = [output.seats]

  assert {
    condition     = join(",", local._short_cards) == "t4"
    error_message = "not by the rule card_holds_its_set"
  }
}

run "what_was_measured_above_the_prediction_is_refused_where_it_does_not_fit" {
  command = plan

  variables {
    models = { qwen3-8b = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 7335837696 }, measured = { gpu_bytes = 7335837697 } } }
  }

  expect_failures = [output.seats]

  assert {
    condition     = join(",", local._short_cards) == "t4"
    error_message = "not by the rule card_holds_its_set"
  }
}

run "the_immich_budget_of_10726_mib_is_refused_on_the_homelabs_card" {
  command = plan

  variables {
    cards = { t4 = { vram_mib = 15360, reserve_mib = 512, tenants = { immich-ml = { budget_mib = 10726 }, frigate = { budget_mib = 2300 } } } }
  }

  expect_failures = [output.seats]

  assert {
    condition     = join(",", local._short_cards) == "t4"
    error_message = "not by the rule card_holds_its_set"
  }
}

run "a_model_on_a_card_that_is_not_there_is_refused" {
  command = plan

  variables {
    models = { qwen3-8b = { intent = { card = "p40", group = "main" }, predicted = { gpu_bytes = 7335837696 } } }
  }

  expect_failures = [var.models]
}

run "a_model_that_is_neither_predicted_nor_declared_is_refused" {
  command = plan

  variables {
    models = { qwen3-8b = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = null } } }
  }

  expect_failures = [output.seats]

  assert {
    condition     = !local.every_model_has_a_figure
    error_message = "not by the rule every_model_has_a_figure"
  }
}

# What the stack itself refuses.  The sibling of each is "a_catalog_is_rendered".

variables {
  catalog = "tests/catalogs/good"
  store   = "/srv/models"
}

run "a_relative_store_is_refused" {
  command = plan

  variables {
    store = "srv/models"
  }

  expect_failures = [var.store]
}

run "models_on_two_cards_are_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/two-cards"
  }

  expect_failures = [output.seating]

  assert {
    condition     = !local.models_are_on_this_machine
    error_message = "not by the rule models_are_on_this_machine"
  }
}

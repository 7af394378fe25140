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

# What the stack itself refuses, and that the module's refusals reach it.  The sibling of each is "a_catalog_is_rendered".

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

run "a_folder_without_models_is_refused" {
  command = plan

  variables {
    catalog = "tests"
  }

  expect_failures = [var.catalog]
}

run "a_folder_that_is_not_there_is_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/nowhere"
  }

  expect_failures = [var.catalog]
}

run "a_catalog_path_that_reads_as_a_pattern_is_refused" {
  command = plan

  variables {
    catalog = "tests/[c]atalogs/good"
  }

  expect_failures = [var.catalog]
}

run "a_model_that_is_no_yaml_is_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/unreadable"
  }

  expect_failures = [terraform_data.models_are_yaml]
}

# What is refused, by one rule each.  The sibling that passes is in catalog.tftest.hcl; the sentences are tested by
# tools/tests/stack/test_render.py.

run "a_missing_lock_is_refused" {
  command = plan

  variables {
    path = "tests/catalogs/no-lock"
  }

  expect_failures = [output.lock]

  assert {
    condition     = !local.lock_exists
    error_message = "not by the rule lock_exists"
  }
}

run "a_lock_that_is_no_json_is_refused" {
  command = plan

  variables {
    path = "tests/catalogs/unreadable"
  }

  expect_failures = [output.lock]

  assert {
    condition     = !local.lock_version_is_known
    error_message = "not by the rule lock_version_is_known"
  }
}

run "a_lock_of_another_version_is_refused" {
  command = plan

  variables {
    path = "tests/catalogs/version-1"
  }

  expect_failures = [output.lock]

  assert {
    condition     = !local.lock_version_is_known
    error_message = "not by the rule lock_version_is_known"
  }
}

run "a_lock_that_was_edited_is_refused" {
  command = plan

  variables {
    path = "tests/catalogs/edited"
  }

  expect_failures = [output.lock]

  assert {
    condition     = !local.lock_is_sealed
    error_message = "not by the rule lock_is_sealed"
  }
}

run "a_changed_file_is_refused" {
  command = plan

  variables {
    path = "tests/catalogs/changed"
  }

  expect_failures = [output.lock]

  assert {
    condition     = !local.lock_is_fresh
    error_message = "not by the rule lock_is_fresh"
  }
}

run "an_added_file_is_refused" {
  command = plan

  variables {
    path = "tests/catalogs/added"
  }

  expect_failures = [output.lock]

  assert {
    condition     = !local.lock_is_fresh
    error_message = "not by the rule lock_is_fresh"
  }
}

run "a_removed_file_is_refused" {
  command = plan

  variables {
    path = "tests/catalogs/removed"
  }

  expect_failures = [output.lock]

  assert {
    condition     = !local.lock_is_fresh
    error_message = "not by the rule lock_is_fresh"
  }
}

run "a_folder_without_models_is_refused" {
  command = plan

  variables {
    path = "tests"
  }

  expect_failures = [var.path]
}

run "a_folder_that_is_not_there_is_refused" {
  command = plan

  variables {
    path = "tests/catalogs/nowhere"
  }

  expect_failures = [var.path]
}

run "a_path_that_reads_as_a_pattern_is_refused" {
  command = plan

  variables {
    path = "tests/[c]atalogs/edited"
  }

  expect_failures = [var.path]
}

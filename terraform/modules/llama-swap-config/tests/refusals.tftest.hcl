# Each run is a catalog with one fault; "a_fresh_lock_is_rendered" in rendering.tftest.hcl is the same without it, and a
# fault with a near miss has its sibling here.

variables {
  store = "/models"
  models = {
    text = {
      context    = 4096
      modalities = ["text"]
      aliases    = ["chat"]
    }
    vision = {
      context    = 2048
      modalities = ["text", "image"]
    }
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
    condition     = length(output.models) == 2
    error_message = "Both models must be rendered."
  }
}

run "a_missing_lock_is_refused" {
  command = plan

  expect_failures = [terraform_data.lock_exists]
}

run "an_unknown_lock_version_is_refused" {
  command = plan

  variables {
    lock = merge(run.locked.lock, { version = 2 })
  }

  expect_failures = [terraform_data.lock_version_is_known]
}

run "a_lock_without_version_is_refused" {
  command = plan

  variables {
    lock = {}
  }

  expect_failures = [terraform_data.lock_version_is_known]
}

run "a_model_without_lock_entry_is_refused" {
  command = plan

  variables {
    lock = { version = 1, models = { text = run.locked.lock.models.text } }
  }

  expect_failures = [terraform_data.lock_covers_the_catalog]
}

run "a_lock_without_readable_models_is_refused" {
  command = plan

  variables {
    lock = { version = 1, models = "all" }
  }

  expect_failures = [terraform_data.lock_covers_the_catalog]
}

run "a_changed_intent_is_refused" {
  command = plan

  variables {
    lock = run.locked.lock
    models = {
      text   = var.models.text
      vision = { context = 2049, modalities = ["text", "image"] }
    }
  }

  expect_failures = [terraform_data.lock_is_fresh]
}

run "an_intent_that_is_no_mapping_is_refused_as_stale" {
  command = plan

  variables {
    lock = run.locked.lock
    models = {
      text   = var.models.text
      vision = "a word"
    }
  }

  expect_failures = [terraform_data.lock_is_fresh]
}

run "keys_in_another_order_are_no_change" {
  command = plan

  variables {
    lock = run.locked.lock
    models = {
      text   = var.models.text
      vision = { modalities = ["text", "image"], context = 2048 }
    }
  }

  assert {
    condition     = length(output.models) == 2
    error_message = "The order of keys must not make a lock stale."
  }
}

run "a_lock_entry_without_a_model_is_refused" {
  command = plan

  variables {
    lock   = run.locked.lock
    models = { text = var.models.text }
  }

  expect_failures = [terraform_data.catalog_covers_the_lock]
}

run "locked_with_one_alias_twice" {
  module {
    source = "./tests/locked"
  }

  variables {
    models = {
      text   = { context = 1, modalities = ["text"], aliases = ["chat"] }
      vision = { context = 1, modalities = ["text"], aliases = ["chat"] }
    }
  }
}

run "an_alias_of_two_models_is_refused" {
  command = plan

  variables {
    lock = run.locked_with_one_alias_twice.lock
    models = {
      text   = { context = 1, modalities = ["text"], aliases = ["chat"] }
      vision = { context = 1, modalities = ["text"], aliases = ["chat"] }
    }
  }

  expect_failures = [terraform_data.aliases_are_unique]
}

run "locked_with_an_id_as_alias" {
  module {
    source = "./tests/locked"
  }

  variables {
    models = {
      text   = { context = 1, modalities = ["text"], aliases = ["vision"] }
      vision = { context = 1, modalities = ["text"] }
    }
  }
}

run "an_alias_that_is_an_id_is_refused" {
  command = plan

  variables {
    lock = run.locked_with_an_id_as_alias.lock
    models = {
      text   = { context = 1, modalities = ["text"], aliases = ["vision"] }
      vision = { context = 1, modalities = ["text"] }
    }
  }

  expect_failures = [terraform_data.aliases_are_not_ids]
}

run "an_argv_of_another_program_is_refused" {
  command = plan

  variables {
    models = { text = var.models.text }
    lock = { version = 1, models = { text = merge(run.locked.lock.models.text, {
      argv = ["sh", "--port", "$${PORT}"]
    }) } }
  }

  expect_failures = [terraform_data.argv_is_llama_server]
}

run "an_entry_without_argv_is_refused" {
  command = plan

  variables {
    models = { text = var.models.text }
    lock   = { version = 1, models = { text = { intent_sha256 = run.locked.lock.models.text.intent_sha256 } } }
  }

  expect_failures = [terraform_data.argv_is_llama_server, terraform_data.argv_takes_its_port]
}

run "an_argv_without_port_is_refused" {
  command = plan

  variables {
    models = { text = var.models.text }
    lock = { version = 1, models = { text = merge(run.locked.lock.models.text, {
      argv = ["llama-server", "--port", "8080", "--alias", "$${PORT}"]
    }) } }
  }

  expect_failures = [terraform_data.argv_takes_its_port]
}

run "a_placeholder_that_nobody_fills_is_refused" {
  command = plan

  variables {
    models = { text = var.models.text }
    lock = { version = 1, models = { text = merge(run.locked.lock.models.text, {
      argv = ["llama-server", "--api-key-file", "$${env.HOME}/key", "--port", "$${PORT}"]
    }) } }
  }

  expect_failures = [terraform_data.argv_has_no_placeholder_left]
}

run "a_health_timeout_that_llama_swap_would_raise_is_refused" {
  command = plan

  variables {
    lock                 = run.locked.lock
    health_check_timeout = 14
  }

  expect_failures = [var.health_check_timeout]
}

run "a_relative_store_is_refused" {
  command = plan

  variables {
    lock  = run.locked.lock
    store = "models"
  }

  expect_failures = [var.store]
}

run "a_store_that_llama_swap_would_expand_is_refused" {
  command = plan

  variables {
    lock  = run.locked.lock
    store = "/srv/$${USER}"
  }

  expect_failures = [var.store]
}

run "an_empty_engine_is_refused" {
  command = plan

  variables {
    lock   = run.locked.lock
    engine = " "
  }

  expect_failures = [var.engine]
}

run "a_concurrency_of_none_is_refused" {
  command = plan

  variables {
    lock        = run.locked.lock
    concurrency = 0
  }

  expect_failures = [var.concurrency]
}

run "a_privileged_start_port_is_refused" {
  command = plan

  variables {
    lock       = run.locked.lock
    start_port = 80
  }

  expect_failures = [var.start_port]
}

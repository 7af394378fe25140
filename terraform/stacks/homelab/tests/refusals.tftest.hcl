# What the stack itself refuses, and that the modules' refusals reach it.  The siblings that pass are in placing.tftest.hcl.

mock_provider "kubernetes" {}

variables {
  catalog = "tests/catalogs/good"
  store   = { nfs = { server = "nas", path = "/export/models" } }
}

run "an_image_locked_under_another_tag_is_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/stale-image"
  }

  expect_failures = [terraform_data.images_are_locked]
}

run "an_image_locked_without_a_digest_is_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/no-digest"
  }

  expect_failures = [terraform_data.images_are_locked]
}

run "an_image_locked_with_another_digest_than_the_one_wanted_is_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/other-digest"
  }

  expect_failures = [terraform_data.images_are_locked]
}

run "a_catalog_without_images_is_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/no-images"
  }

  expect_failures = [terraform_data.images_are_named]
}

run "a_catalog_without_a_lock_is_refused_by_that_rule_alone" {
  command = plan

  variables {
    catalog = "tests/catalogs/no-lock"
  }

  # They refuse it too, in the same words.
  override_module {
    target  = module.seating
    outputs = { chart = {}, seats = {} }
  }

  override_module {
    target  = module.llama_swap_config
    outputs = { models = [], yaml = "models: {}" }
  }

  expect_failures = [terraform_data.lock_exists]
}

run "an_image_of_ones_own_needs_a_digest_too" {
  command = plan

  variables {
    image = "example/llama-swap:v1"
  }

  expect_failures = [var.image]
}

run "models_on_two_cards_are_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/two-cards"
  }

  expect_failures = [terraform_data.models_are_on_one_card]
}

run "a_card_without_a_node_is_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/no-node"
  }

  expect_failures = [terraform_data.card_names_its_node]
}

run "a_local_store_on_another_node_is_refused" {
  command = plan

  variables {
    store = { local = { node = "k8s-node2", path = "/srv/models" } }
  }

  expect_failures = [terraform_data.store_is_on_the_cards_node]
}

run "a_model_that_is_no_yaml_is_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/unreadable"
  }

  expect_failures = [terraform_data.models_are_yaml]
}

run "a_folder_without_models_is_refused" {
  command = plan

  variables {
    catalog = "tests"
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

run "somebody_elses_namespace_is_refused" {
  command = plan

  variables {
    namespace = "kube-system"
  }

  expect_failures = [var.namespace]
}

run "the_default_namespace_is_refused" {
  command = plan

  variables {
    namespace = "default"
  }

  expect_failures = [var.namespace]
}

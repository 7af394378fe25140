# Its name is its content's.  What an apply does with the one before is shown by tools/tests/cluster/test_config_maps.py.

mock_provider "kubernetes" {}

variables {
  name        = "llama-swap-config"
  namespace   = "llama-cpp"
  labels      = { "app.kubernetes.io/part-of" = "corral" }
  data        = { "config.yaml" = "models: {}\n" }
  binary_data = { "a.whl" = "AAAA" }
}

run "it_has_its_labels_and_without_a_word_no_annotation" {
  command = plan

  assert {
    condition     = alltrue([for one in kubernetes_config_map_v1.by_content : one.metadata[0].annotations == null && one.metadata[0].labels == tomap(var.labels)])
    error_message = "It must have the labels that it was given, and no annotation."
  }
}

run "it_has_the_annotations_that_it_was_given_and_keeps_its_name" {
  command = plan

  variables {
    annotations = { "example.org/owner" = "ops" }
  }

  assert {
    condition     = alltrue([for one in kubernetes_config_map_v1.by_content : one.metadata[0].annotations == tomap({ "example.org/owner" = "ops" })])
    error_message = "It must have the annotations."
  }

  assert {
    condition     = output.name == run.it_has_its_labels_and_without_a_word_no_annotation.name
    error_message = "Its name is its content's alone: an annotation must be no new pod."
  }
}

run "it_cannot_be_edited" {
  assert {
    condition     = values(kubernetes_config_map_v1.by_content)[*].immutable == [true]
    error_message = "The API server must refuse an edit: a pod that has read the file would not notice it."
  }

  assert {
    condition     = output.data == tomap({ "config.yaml" = "models: {}\n" }) && output.binary_data == tomap({ "a.whl" = "AAAA" })
    error_message = "It must hold what it was given."
  }

  assert {
    condition     = [for one in kubernetes_config_map_v1.by_content : one.metadata[0].labels] == [tomap({ "app.kubernetes.io/part-of" = "corral" })]
    error_message = "It must be found by its labels."
  }
}

run "its_name_ends_with_a_hash_of_its_content" {
  assert {
    condition     = can(regex("^llama-swap-config-[0-9a-f]{10}$", output.name)) && output.name == run.it_cannot_be_edited.name
    error_message = "The same content must have the same name."
  }
}

run "another_text_is_another_name" {
  variables {
    data = { "config.yaml" = "models: {}\n\n" }
  }

  assert {
    condition     = output.name != run.it_cannot_be_edited.name && length(kubernetes_config_map_v1.by_content) == 1
    error_message = "A pod that mounts the name must change with the content."
  }
}

run "another_binary_file_is_another_name" {
  variables {
    binary_data = { "a.whl" = "AAAB" }
  }

  assert {
    condition     = output.name != run.it_cannot_be_edited.name && output.name != run.another_text_is_another_name.name
    error_message = "A pod that mounts the name must change with the content."
  }
}

run "a_content_that_comes_back_has_its_name_again" {
  assert {
    condition     = output.name == run.it_cannot_be_edited.name
    error_message = "To go back must be to go back to the same object."
  }
}

run "other_labels_are_the_same_content" {
  variables {
    labels = { "app.kubernetes.io/part-of" = "another" }
  }

  assert {
    condition     = output.name == run.it_cannot_be_edited.name
    error_message = "A label must not replace a pod."
  }
}

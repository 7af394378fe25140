variables {
  catalog  = "../local/tests/catalogs/good"
  api_base = "http://127.0.0.1:8080/v1"
}

run "a_catalog_is_rendered" {
  command = plan

  assert {
    condition     = contains(output.model_list[*].model_name, "chat") && yamldecode(output.yaml).model_list[*].model_name == output.model_list[*].model_name
    error_message = "The models of the lock must be listed."
  }
}

run "models_of_several_cards_are_one_list" {
  command = plan

  variables {
    catalog = "../local/tests/catalogs/two-cards"
  }

  assert {
    condition     = length(output.model_list) > 1
    error_message = "A gateway has the models of all cards."
  }
}

run "the_variables_reach_the_configuration" {
  command = plan

  variables {
    api_key_env    = "CORRAL_DOOR_KEY"
    load_seconds   = 600
    answer_seconds = 60
  }

  assert {
    condition     = alltrue([for one in output.model_list : one.litellm_params.api_key == "os.environ/CORRAL_DOOR_KEY" && one.litellm_params.timeout == 660])
    error_message = "Each must be in the entries."
  }
}

# What a lock becomes for LiteLLM.

variables {
  api_base = "http://llama-swap.llama-cpp.svc.cluster.local:8080/v1"
  models = {
    text   = { intent = { aliases = ["chat", "org/text"], context = 4096, modalities = ["text"], fallback = "vision" } }
    rank   = { intent = { aliases = [], context = 512, modalities = ["text"], task = "rerank" } }
    vector = { intent = { aliases = [], context = 512, modalities = ["text"], task = "embedding" } }
    vision = { intent = { aliases = [], context = 2048, modalities = ["text", "image"], task = "chat" } }
  }
}

run "every_name_that_a_request_may_use_is_listed" {
  command = plan

  assert {
    condition     = yamldecode(output.yaml).model_list[*].model_name == ["rank", "text", "chat", "org/text", "vector", "vision"]
    error_message = "Each id and each alias must be there, and nothing else."
  }

  assert {
    condition     = join(" ", [for one in output.model_list : one.litellm_params.model if one.model_info.mode == "chat"]) == "openai/text openai/text openai/text openai/vision"
    error_message = "An alias must lead to its model."
  }

  assert {
    condition     = output.model_list[0].litellm_params.model == "hosted_vllm/rank" && output.model_list[4].litellm_params.model == "openai/vector"
    error_message = "LiteLLM has another provider for rankings."
  }

  assert {
    condition     = [for one in output.model_list : one.model_info.max_input_tokens] == [512, 4096, 4096, 4096, 512, 2048]
    error_message = "The context is the model's."
  }

  assert {
    condition     = [for one in output.model_list : one.model_name if one.model_info.supports_vision] == ["vision"]
    error_message = "Only that one takes images."
  }
}

run "an_adapter_is_listed_under_the_name_that_the_door_knows_and_has_no_fallback" {
  command = plan

  variables {
    models = {
      text = { intent = {
        aliases  = ["chat"], context = 4096, modalities = ["text"], fallback = "other"
        adapters = [{ name = null }, { name = "sql" }, { name = "sql" }]
      } }
      other = { intent = { aliases = [], context = 4096, modalities = ["text"] } }
    }
  }

  assert {
    condition     = { for one in output.model_list : one.model_name => one.litellm_params.model } == { chat = "openai/text", other = "openai/other", text = "openai/text", "text:sql" = "openai/text:sql" }
    error_message = "Each name must be there once, whatever its versions, and lead to the adapter."
  }

  assert {
    condition     = output.fallbacks == [{ text = ["other"] }, { chat = ["other"] }]
    error_message = "No other model has the adapter."
  }
}

run "nothing_is_repeated_and_no_health_check_asks_a_model" {
  command = plan

  assert {
    condition = alltrue([for one in output.model_list : (
      one.litellm_params.num_retries == 0 && one.litellm_params.max_retries == 0 && one.model_info.disable_background_health_check
    )])
    error_message = "Each model must be asked once, and never for its health."
  }

  assert {
    condition     = yamldecode(output.yaml).router_settings.num_retries == 0 && yamldecode(output.yaml).litellm_settings.num_retries == 0
    error_message = "The router and the library must repeat nothing."
  }

  assert {
    condition     = yamldecode(output.yaml).general_settings.health_check_skip_disabled_background_models && !yamldecode(output.yaml).general_settings.background_health_checks
    error_message = "GET /health must ask no model."
  }

  assert {
    condition     = yamldecode(output.yaml).router_settings.disable_cooldowns
    error_message = "A model that failed must be asked again."
  }
}

run "a_timeout_outlasts_a_cold_load_and_an_answer" {
  command = plan

  variables {
    load_seconds   = 900
    answer_seconds = 120
  }

  assert {
    condition     = alltrue([for one in output.model_list : one.litellm_params.timeout == 1020 && one.litellm_params.stream_timeout == 1020])
    error_message = "Each model's timeout must be that of its load and of its answer."
  }

  assert {
    condition     = yamldecode(output.yaml).router_settings.timeout == 1020 && yamldecode(output.yaml).litellm_settings.request_timeout == 1020
    error_message = "No other timeout of LiteLLM may be shorter."
  }
}

run "a_fallback_is_that_of_the_catalog_for_each_name_of_the_model" {
  command = plan

  assert {
    condition     = yamldecode(output.yaml).router_settings.fallbacks == [{ text = ["vision"] }, { chat = ["vision"] }, { "org/text" = ["vision"] }]
    error_message = "The id and its aliases must have it, and no other model."
  }
}

run "keys_are_variables_of_the_environment" {
  command = plan

  variables {
    api_key_env  = "CORRAL_DOOR_KEY"
    database_env = "DATABASE_URL"
  }

  assert {
    condition     = alltrue([for one in output.model_list : one.litellm_params.api_key == "os.environ/CORRAL_DOOR_KEY"])
    error_message = "The door's key must be a variable."
  }

  assert {
    condition     = yamldecode(output.yaml).general_settings.master_key == "os.environ/LITELLM_MASTER_KEY" && yamldecode(output.yaml).general_settings.database_url == "os.environ/DATABASE_URL"
    error_message = "The master key and the database must be variables."
  }
}

run "without_a_door_and_a_database_there_is_neither" {
  command = plan

  assert {
    condition     = alltrue([for one in output.model_list : one.litellm_params.api_key == "none"]) && !can(yamldecode(output.yaml).general_settings.database_url)
    error_message = "An endpoint without keys gets none, and there is no database by default."
  }
}

run "a_key_in_the_address_is_refused" {
  command = plan

  variables {
    api_base = "http://user:secret@llama-swap:8080/v1"
  }

  expect_failures = [var.api_base]
}

run "an_address_without_v1_is_refused" {
  command = plan

  variables {
    api_base = "http://llama-swap:8080"
  }

  expect_failures = [var.api_base]
}

run "a_key_is_no_name_of_a_variable" {
  command = plan

  variables {
    api_key_env = "sk-secret"
  }

  expect_failures = [var.api_key_env]
}

run "an_address_is_no_name_of_a_variable" {
  command = plan

  variables {
    database_env = "postgres://litellm@db/litellm"
  }

  expect_failures = [var.database_env]
}

run "a_load_has_the_limits_of_llama_swap" {
  command = plan

  variables {
    load_seconds = 14
  }

  expect_failures = [var.load_seconds]
}

run "an_answer_takes_a_second_at_least" {
  command = plan

  variables {
    answer_seconds = 0
  }

  expect_failures = [var.answer_seconds]
}

# Values of the module's own variables that are refused.

variables {
  store = "/models"
  models = { text = {
    argv   = ["llama-server", "--port", "$${PORT}"]
    files  = []
    intent = { aliases = [], context = 4096, group = "main", modalities = ["text"], parallel = 1, reasoning = "auto", ttl = 600 }
  } }
}

run "the_same_without_a_fault_passes" {
  command = plan

  assert {
    condition     = length(output.models) == 1
    error_message = "The model must be rendered."
  }
}

run "a_health_timeout_that_llama_swap_would_raise_is_refused" {
  command = plan

  variables {
    health_check_timeout = 14
  }

  expect_failures = [var.health_check_timeout]
}

run "a_load_of_more_than_a_day_is_refused" {
  command = plan

  variables {
    health_check_timeout = 86401
  }

  expect_failures = [var.health_check_timeout]
}

run "a_relative_store_is_refused" {
  command = plan

  variables {
    store = "models"
  }

  expect_failures = [var.store]
}

run "a_store_that_llama_swap_would_expand_is_refused" {
  command = plan

  variables {
    store = "/srv/$${USER}"
  }

  expect_failures = [var.store]
}

run "an_empty_engine_is_refused" {
  command = plan

  variables {
    engine = " "
  }

  expect_failures = [var.engine]
}

run "a_concurrency_of_none_is_refused" {
  command = plan

  variables {
    concurrency = 0
  }

  expect_failures = [var.concurrency]
}

run "a_concurrency_beyond_the_doors_connections_is_refused" {
  command = plan

  variables {
    concurrency = 257
  }

  expect_failures = [var.concurrency]
}

run "a_privileged_start_port_is_refused" {
  command = plan

  variables {
    start_port = 80
  }

  expect_failures = [var.start_port]
}

run "a_key_itself_is_refused" {
  command = plan

  variables {
    api_key_env = "sk-1234"
  }

  expect_failures = [var.api_key_env]
}

run "a_reason_that_llama_swap_would_expand_is_refused" {
  command = plan

  variables {
    on_cpu = { m = "$${PORT}" }
  }

  expect_failures = [var.on_cpu]
}

run "a_model_on_vllm_without_its_program_is_refused" {
  command = plan

  variables {
    models = {
      large = {
        argv  = ["vllm", "serve", "$${STORE}/large", "--port", "$${PORT}"]
        files = []
        intent = {
          aliases = [], context = 4096, group = "large", modalities = ["text"], parallel = 4, reasoning = "auto", ttl = 0
        }
      }
    }
  }

  assert {
    condition     = !local.vllm_is_where_used
    error_message = "Without a program vLLM serves nothing."
  }

  expect_failures = [output.yaml]
}

run "a_program_of_vllm_that_llama_swap_would_expand_is_refused" {
  command = plan

  variables {
    vllm = "/opt/$${PORT}/vllm"
  }

  expect_failures = [var.vllm]
}

run "a_peer_that_is_elsewhere_is_refused" {
  command = plan

  variables {
    peers = { other = { proxy = "https://example.org/v1", models = ["large"] } }
  }

  expect_failures = [var.peers]
}

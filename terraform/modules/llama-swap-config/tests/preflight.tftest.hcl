# The preflight in front of the engine.  What the script does is shown by tools/tests/unit/test_preflight.py.

variables {
  store     = "/models"
  engine    = "/opt/llama.cpp/llama-server"
  preflight = "/opt/corral/preflight.sh"
  models = {
    text = {
      argv   = ["llama-server", "-m", "$${STORE}/text/model.gguf", "-c", "4096", "--port", "$${PORT}"]
      files  = []
      intent = { aliases = [], context = 4096, group = "main", modalities = ["text"], parallel = 1, reasoning = "auto", ttl = 600 }
    }
    vision = {
      argv   = ["llama-server", "-m", "$${STORE}/vision/model.gguf", "-c", "2048", "--port", "$${PORT}"]
      files  = []
      intent = { aliases = [], context = 2048, group = "main", modalities = ["text", "image"], parallel = 1, reasoning = "auto", ttl = 600 }
    }
  }
  seats = {
    text   = 6996
    vision = 0
  }
}

run "every_engine_has_the_preflight_in_front" {
  command = plan

  assert {
    condition = [for model in yamldecode(output.yaml).models : model.cmd] == [
      "/opt/corral/preflight.sh\n--model text\n--need-mib 6996 -- /opt/llama.cpp/llama-server\n-m /models/text/model.gguf\n-c 4096\n--port $${PORT}",
      "/opt/corral/preflight.sh\n--model vision\n--need-mib 0 -- /opt/llama.cpp/llama-server\n-m /models/vision/model.gguf\n-c 2048\n--port $${PORT}",
    ]
    error_message = "A command must be the preflight, its model's seat, and then the engine as it would be without."
  }
}

run "a_preflight_in_a_path_with_spaces_is_quoted" {
  command = plan

  variables {
    preflight = "/opt/it's here/preflight.sh"
  }

  assert {
    condition     = startswith(yamldecode(output.yaml).models.text.cmd, "'/opt/it'\\''s here/preflight.sh'\n--model text\n")
    error_message = "The script's path is a word like any other."
  }
}

run "without_a_preflight_no_seat_is_asked_for" {
  command = plan

  variables {
    preflight = null
    seats     = {}
  }

  assert {
    condition     = startswith(yamldecode(output.yaml).models.text.cmd, "/opt/llama.cpp/llama-server\n-m /models/text/model.gguf")
    error_message = "Nothing may stand in front of the engine."
  }
}

run "a_model_without_seat_is_refused" {
  command = plan

  variables {
    seats = { text = 6996 }
  }

  expect_failures = [output.yaml]

  assert {
    condition     = !local.every_model_has_a_seat
    error_message = "not by the rule every_model_has_a_seat"
  }
}

run "a_seat_of_half_a_mib_is_refused" {
  command = plan

  variables {
    seats = { text = 6996.5, vision = 0 }
  }

  expect_failures = [output.yaml]

  assert {
    condition     = !local.every_model_has_a_seat
    error_message = "not by the rule every_model_has_a_seat"
  }
}

run "a_seat_below_nothing_is_refused" {
  command = plan

  variables {
    seats = { text = 6996, vision = -1 }
  }

  expect_failures = [output.yaml]

  assert {
    condition     = !local.every_model_has_a_seat
    error_message = "not by the rule every_model_has_a_seat"
  }
}

run "a_relative_preflight_is_refused" {
  command = plan

  variables {
    preflight = "preflight.sh"
  }

  expect_failures = [var.preflight]
}

run "a_preflight_that_llama_swap_would_expand_is_refused" {
  command = plan

  variables {
    preflight = "/opt/$${USER}/preflight.sh"
  }

  expect_failures = [var.preflight]
}

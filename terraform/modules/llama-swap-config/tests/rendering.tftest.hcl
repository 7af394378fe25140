# What a good catalog becomes.

variables {
  store = "/models"
  models = {
    text = {
      argv     = ["llama-server", "-m", "$${STORE}/text/model.gguf", "-c", "4096", "--port", "$${PORT}"]
      files    = [{ sha256 = "ab" }]
      revision = "0123456789abcdef0123456789abcdef01234567"
      intent = {
        aliases = [], context = 4096, group = "main", modalities = ["text"], parallel = 1, reasoning = "auto", ttl = 600
      }
    }
    vision = {
      argv  = ["llama-server", "-m", "$${STORE}/vision/model.gguf", "-c", "2048", "--port", "$${PORT}"]
      files = []
      intent = {
        aliases = ["look", "see"], context = 2048, group = "eyes", modalities = ["text", "image"], parallel = 12, reasoning = "off", ttl = 0
      }
    }
    writer = {
      argv  = ["llama-server", "-m", "$${STORE}/writer/model.gguf", "-c", "8192", "--port", "$${PORT}"]
      files = []
      intent = {
        aliases = [], context = 8192, group = "main", modalities = ["text"], parallel = 1, reasoning = "auto", ttl = 600
      }
    }
  }
}

run "every_model_is_rendered" {
  command = plan

  assert {
    condition     = join(" ", keys(yamldecode(output.yaml).models)) == "text vision writer"
    error_message = "Every model must be in the configuration, and nothing else."
  }
}

run "a_command_is_the_argv_of_the_lock" {
  command = plan

  variables {
    engine = "/opt/llama.cpp/llama-server"
    store  = "/srv/models/"
  }

  assert {
    condition     = yamldecode(output.yaml).models.text.cmd == "/opt/llama.cpp/llama-server\n-m /srv/models/text/model.gguf\n-c 4096\n--port $${PORT}"
    error_message = "The engine and the store must be filled in, the port left to llama-swap."
  }
}

run "models_are_reached_on_loopback_only" {
  command = plan

  assert {
    condition     = alltrue([for model in values(yamldecode(output.yaml).models) : model.proxy == "http://127.0.0.1:$${PORT}"])
    error_message = "Every model must be proxied to 127.0.0.1."
  }
}

run "a_gateway_gets_what_the_intent_says" {
  command = plan

  assert {
    condition = jsonencode(output.models[0]) == jsonencode({
      id         = "text"
      adapters   = []
      aliases    = []
      context    = 4096
      parallel   = 1
      modalities = ["text"]
      task       = "chat"
      reasoning  = "auto"
      group      = "main"
      ttl        = 600
    })
    error_message = "The list must have what a gateway needs."
  }
}

run "the_intent_reaches_llama_swap" {
  command = plan

  assert {
    condition = jsonencode(output.models[1]) == jsonencode({
      id         = "vision"
      adapters   = []
      aliases    = ["look", "see"]
      context    = 2048
      parallel   = 12
      modalities = ["text", "image"]
      task       = "chat"
      reasoning  = "off"
      group      = "eyes"
      ttl        = 0
    })
    error_message = "What is given must be kept."
  }

  assert {
    condition = yamldecode(output.yaml).models.vision == {
      aliases          = ["look", "see"]
      capabilities     = { context = 2048, in = ["text", "image"], out = ["text"] }
      checkEndpoint    = "/health"
      cmd              = "llama-server\n-m /models/vision/model.gguf\n-c 2048\n--port $${PORT}"
      concurrencyLimit = 12
      metadata         = { revision = null, sha256 = [] }
      proxy            = "http://127.0.0.1:$${PORT}"
      ttl              = 0
    }
    error_message = "The options must reach llama-swap."
  }
}

run "a_model_without_answers_in_words_says_so" {
  command = plan

  variables {
    models = { for task in ["embedding", "rerank"] : task => {
      argv  = ["llama-server", "--${task}", "--port", "$${PORT}"]
      files = []
      intent = {
        aliases = [], context = 512, group = "main", modalities = ["text"], parallel = 1, reasoning = "auto", task = task, ttl = 600
      }
    } }
  }

  assert {
    condition     = join(" ", output.models[*].task) == "embedding rerank"
    error_message = "A gateway must get the task."
  }

  assert {
    condition = jsonencode({ for id, model in yamldecode(output.yaml).models : id => model.capabilities }) == jsonencode({
      embedding = { context = 512, in = ["text"], out = [] }
      rerank    = { context = 512, in = ["text"], out = [], reranker = true }
    })
    error_message = "llama-swap must list no output of text, and the reranker as one."
  }
}

run "a_group_runs_one_model_and_leaves_other_groups_alone" {
  command = plan

  assert {
    condition = yamldecode(output.yaml).routing.router == {
      use = "group"
      settings = { groups = {
        eyes = { swap = true, exclusive = false, persistent = false, members = ["vision"] }
        main = { swap = true, exclusive = false, persistent = false, members = ["text", "writer"] }
      } }
    }
    error_message = "Every group must be one that swaps within itself only."
  }
}

run "models_that_may_run_together_are_sets_of_the_matrix" {
  command = plan

  variables {
    together = { eyes = [["vision"]], main = [["text", "writer"]] }
  }

  assert {
    condition = yamldecode(output.yaml).routing.router == {
      use = "matrix"
      settings = { matrix = {
        vars = { m0 = "text", m1 = "vision", m2 = "writer" }
        sets = { eyes = "m1", main = "m0 & m2", _all = "+eyes & +main" }
      } }
    }
    error_message = "Each set of one group must be able to run beside each of the other."
  }

  assert {
    condition = alltrue([
      for path, found in {
        "routing.router.settings"        = keys(yamldecode(output.yaml).routing.router.settings)
        "routing.router.settings.matrix" = keys(yamldecode(output.yaml).routing.router.settings.matrix)
      } : length(setsubtract(found, jsondecode(file("tests/known-keys.json")).keys[path])) == 0
    ])
    error_message = "llama-swap would ignore a key that is not in known-keys.json."
  }
}

run "the_sets_of_one_group_keep_their_order" {
  command = plan

  variables {
    models = { for id in ["a", "b", "c", "d"] : id => {
      argv   = ["llama-server", "--port", "$${PORT}"]
      files  = []
      intent = { aliases = [], context = 4096, group = "main", modalities = ["text"], parallel = 1, reasoning = "auto", ttl = 600 }
    } }
    together = { main = [["b", "d"], ["a"], ["b", "c"]] }
  }

  assert {
    condition     = yamldecode(output.yaml).routing.router.settings.matrix.sets == { main = "m1 & m3 | m0 | m1 & m2" }
    error_message = "llama-swap takes the first of equal ones."
  }
}

run "sets_of_one_model_each_are_groups" {
  command = plan

  variables {
    together = { eyes = [["vision"]], main = [["text"], ["writer"]] }
  }

  assert {
    condition     = yamldecode(output.yaml).routing.router.use == "group" && keys(yamldecode(output.yaml).routing.router.settings.groups) == ["eyes", "main"]
    error_message = "A matrix would add nothing."
  }
}

run "a_model_in_no_set_is_refused" {
  command = plan

  variables {
    together = { eyes = [["vision"]], main = [["text"]] }
  }

  expect_failures = [output.yaml]

  assert {
    condition     = !local.every_model_is_in_a_set_of_its_group && join(",", local._strays) == "writer"
    error_message = "not by the rule every_model_is_in_a_set_of_its_group"
  }
}

run "a_model_in_a_set_of_another_group_is_refused" {
  command = plan

  variables {
    together = { eyes = [["vision", "text"]], main = [["text", "writer"]] }
  }

  expect_failures = [output.yaml]

  assert {
    condition     = !local.every_model_is_in_a_set_of_its_group && join(",", local._strays) == "text"
    error_message = "not by the rule every_model_is_in_a_set_of_its_group"
  }
}

run "a_set_with_a_model_that_is_not_there_is_refused" {
  command = plan

  variables {
    together = { eyes = [["vision"]], main = [["text", "writer", "gone"]] }
  }

  expect_failures = [output.yaml]

  assert {
    condition     = !local.every_model_is_in_a_set_of_its_group && join(",", local._strays) == "gone"
    error_message = "not by the rule every_model_is_in_a_set_of_its_group"
  }
}

run "bodies_are_not_kept_and_failures_are_logged" {
  command = plan

  assert {
    condition     = yamldecode(output.yaml).captureBuffer == 0 && yamldecode(output.yaml).logToStdout == "both"
    error_message = "Requests must not be kept in memory, and the reason of a failed load must be logged."
  }
}

run "the_knobs_reach_llama_swap" {
  command = plan

  variables {
    concurrency          = 20
    health_check_timeout = 15
    start_port           = 6000
  }

  assert {
    condition = (
      yamldecode(output.yaml).healthCheckTimeout == 15
      && yamldecode(output.yaml).startPort == 6000
      && yamldecode(output.yaml).models.vision.concurrencyLimit == 20
    )
    error_message = "Each knob must be in the configuration."
  }
}

run "every_key_is_known_to_llama_swap" {
  command = plan

  variables {
    api_key_env = "SWAP_KEY"
  }

  assert {
    condition = alltrue([
      for path, found in {
        ""                                 = keys(yamldecode(output.yaml))
        "models.*"                         = distinct(flatten([for model in values(yamldecode(output.yaml).models) : keys(model)]))
        "models.*.capabilities"            = keys(yamldecode(output.yaml).models.text.capabilities)
        "performance"                      = keys(yamldecode(output.yaml).performance)
        "routing"                          = keys(yamldecode(output.yaml).routing)
        "routing.router"                   = keys(yamldecode(output.yaml).routing.router)
        "routing.router.settings"          = keys(yamldecode(output.yaml).routing.router.settings)
        "routing.router.settings.groups.*" = keys(yamldecode(output.yaml).routing.router.settings.groups.main)
      } : length(setsubtract(found, jsondecode(file("tests/known-keys.json")).keys[path])) == 0
    ])
    error_message = "llama-swap would ignore a key that is not in known-keys.json."
  }
}

run "what_a_model_is_made_of_is_part_of_its_configuration" {
  command = plan

  assert {
    condition     = yamldecode(output.yaml).models.text.metadata == { revision = "0123456789abcdef0123456789abcdef01234567", sha256 = ["ab"] }
    error_message = "New weights under the same command line must be a new configuration."
  }
}

run "without_a_key_there_is_nothing_of_one" {
  command = plan

  assert {
    condition     = !can(yamldecode(output.yaml).apiKeys) && !can(yamldecode(output.yaml).models.text.env)
    error_message = "llama-swap must accept every request, and no variable be named."
  }
}

run "a_key_is_named_by_its_variable_and_kept_from_the_engines" {
  command = plan

  variables {
    api_key_env = "SWAP_KEY"
  }

  assert {
    condition     = yamldecode(output.yaml).apiKeys == ["$${env.SWAP_KEY}"]
    error_message = "The key must come from the environment, when llama-swap starts."
  }

  assert {
    condition     = alltrue([for model in values(yamldecode(output.yaml).models) : model.env == ["SWAP_KEY="]])
    error_message = "Each engine must be started with an empty variable in the key's place."
  }
}

run "a_model_on_the_cpu_gets_no_card_by_its_environment_and_keeps_its_command" {
  command = plan

  variables {
    api_key_env = "SWAP_KEY"
    on_cpu      = { vision = "Apple M2: before M5", none = "it is not there" }
  }

  assert {
    condition     = yamldecode(output.yaml).models.vision.env == ["SWAP_KEY=", "LLAMA_ARG_DEVICE=none", "LLAMA_ARG_MMPROJ_OFFLOAD=0"]
    error_message = "The engine must be started without a device, and its projector too."
  }

  assert {
    condition     = yamldecode(output.yaml).models.vision.metadata.on_cpu == "Apple M2: before M5"
    error_message = "The reason must be part of the configuration."
  }

  assert {
    condition     = endswith(yamldecode(output.yaml).models.vision.cmd, "-m /models/vision/model.gguf\n-c 2048\n--port $${PORT}")
    error_message = "The command line must stay the lock's."
  }

  assert {
    condition     = yamldecode(output.yaml).models.text.env == ["SWAP_KEY="] && !can(yamldecode(output.yaml).models.text.metadata.on_cpu)
    error_message = "Other models must keep their card."
  }
}

run "an_adapter_has_a_name_of_its_own_and_the_model_is_without_it" {
  command = plan

  variables {
    models = { base = {
      argv  = ["llama-server", "-m", "$${STORE}/base/model.gguf", "--port", "$${PORT}"]
      files = []
      intent = {
        adapters = [
          { scale = 0.5 },
          { name = "red", scale = 1, version = "v2" },
          { name = "red", scale = 1.5, version = "v1" },
          { name = "green", scale = 2 },
        ]
        aliases = ["b"], context = 1024, group = "main", modalities = ["text"], parallel = 1, reasoning = "auto", ttl = 0
      }
    } }
  }

  assert {
    condition = {
      for name, set in yamldecode(output.yaml).models.base.filters.setParamsByID : name => join(" ", set.lora[*].scale)
      } == {
      b               = "0.5 0 0 0"
      base            = "0.5 0 0 0"
      "base:green"    = "0.5 0 0 2"
      "base:green@v1" = "0.5 0 0 2"
      "base:red"      = "0.5 1 0 0"
      "base:red@v1"   = "0.5 0 1.5 0"
      "base:red@v2"   = "0.5 1 0 0"
    }
    error_message = "One adapter by name at most has an effect, those without a name always; the first version serves."
  }

  assert {
    condition     = alltrue([for set in values(yamldecode(output.yaml).models.base.filters.setParamsByID) : jsonencode(set.lora[*].id) == "[0,1,2,3]"])
    error_message = "An adapter has the number of its place."
  }

  assert {
    condition     = jsonencode(output.models[0].adapters) == jsonencode(["base:red", "base:green"])
    error_message = "A gateway gets the names of adapters, without their versions."
  }
}

run "a_model_on_vllm_runs_offline_with_the_program_that_is_named" {
  command = plan

  variables {
    vllm        = "/opt/vllm/bin/vllm"
    api_key_env = "SWAP_KEY"
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
    condition     = yamldecode(output.yaml).models.large.cmd == "/opt/vllm/bin/vllm serve /models/large\n--port $${PORT}"
    error_message = "The program must be vLLM's, with the lock's words after it."
  }

  assert {
    condition = alltrue([for one in ["HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "SWAP_KEY=", "VLLM_API_KEY=$${env.SWAP_KEY}"] :
      contains(yamldecode(output.yaml).models.large.env, one)
    ])
    error_message = "It must fetch nothing, report nothing, and take only requests with the key."
  }
}

run "a_peer_gets_the_requests_for_its_models_with_the_key" {
  command = plan

  variables {
    api_key_env = "SWAP_KEY"
    peers       = { vllm-large = { proxy = "http://vllm-large.models.svc:8000", models = ["large", "big"] } }
  }

  assert {
    condition = yamldecode(output.yaml).peers == {
      vllm-large = {
        proxy = "http://vllm-large.models.svc:8000", models = ["large", "big"], apiKey = "$${env.SWAP_KEY}", timeouts = { responseHeader = 3600 }
      }
    }
    error_message = "llama-swap must pass these requests on."
  }

  assert {
    condition = alltrue([for path, found in {
      "peers.*"          = keys(yamldecode(output.yaml).peers.vllm-large)
      "peers.*.timeouts" = keys(yamldecode(output.yaml).peers.vllm-large.timeouts)
    } : length(setsubtract(found, jsondecode(file("tests/known-keys.json")).keys[path])) == 0])
    error_message = "llama-swap would ignore a key that is not in known-keys.json."
  }
}

run "without_peers_there_are_none" {
  command = plan

  assert {
    condition     = !contains(keys(yamldecode(output.yaml)), "peers")
    error_message = "A configuration without peers must stay what it was."
  }
}

# What the guard is given; tools/tests/stack has the guard read it.

variables {
  guard        = { unix = "/run/corral/guard.sock" }
  hosts        = ["localhost"]
  internal_key = { file = "/run/corral/internal-key" }
  listen       = "127.0.0.1:8080"
  models = {
    chat  = { intent = { aliases = [] } }
    "v.1" = { intent = { aliases = ["eyes", "gpt-4o"] } }
  }
  upstream = { port = 5799 }
}

run "without_keys_everyone_on_this_machine_is_the_operator" {
  command = plan

  assert {
    condition = jsondecode(output.guard) == {
      version             = 1
      listen              = { unix = "/run/corral/guard.sock" }
      upstream            = { host = "127.0.0.1", port = 5799 }
      internal_key_file   = "/run/corral/internal-key"
      keys                = null
      clients             = { operator = { models = null, requests = null, role = "operator" } }
      models              = { chat = "chat", "v.1" = "v.1", eyes = "v.1", gpt-4o = "v.1" }
      adapters            = {}
      chosen_versions     = null
      groups              = {}
      tasks               = {}
      peers               = {}
      image_hosts         = []
      body_mib            = 64
      retry_after_seconds = 30
      drain_seconds       = 30
    }
    error_message = "The document must be complete, with each id and alias, and one operator."
  }
}

run "the_groups_of_models_reach_the_guard" {
  command = plan

  variables {
    groups = { chat = "main", "v.1" = "eyes" }
  }

  assert {
    condition     = jsondecode(output.guard).groups == { chat = "main", "v.1" = "eyes" }
    error_message = "The guard unloads models of the same group alone."
  }
}

run "the_tasks_of_models_reach_the_guard" {
  command = plan

  variables {
    models = {
      chat     = { intent = { aliases = [], task = "chat" } }
      vectors  = { intent = { aliases = [], task = "embedding" } }
      rankings = { intent = { aliases = [], task = "rerank" } }
    }
  }

  assert {
    condition     = jsondecode(output.guard).tasks == { vectors = "embedding", rankings = "rerank" }
    error_message = "The guard refuses a request on the path of another task."
  }
}

run "clients_have_what_the_lock_gives_them" {
  command = plan

  variables {
    keys    = "/run/corral/keys.json"
    clients = { immich = { models = ["v.1"], requests = 4 }, desk = { requests = 2 } }
  }

  assert {
    condition = jsondecode(output.guard).clients == {
      operator = { models = null, requests = null, role = "operator" }
      immich   = { models = ["v.1"], requests = 4, role = "client" }
      desk     = { models = null, requests = 2, role = "client" }
    }
    error_message = "No client may be an operator, and only the operator is without a limit."
  }

  assert {
    condition     = jsondecode(output.guard).keys == "/run/corral/keys.json"
    error_message = "The guard must read the keys that were named."
  }
}

run "a_monitor_gets_no_answer_of_a_model" {
  command = plan

  variables {
    keys        = "/run/corral/keys.json"
    has_monitor = true
  }

  assert {
    condition     = jsondecode(output.guard).clients.monitor == { models = [], requests = 4, role = "monitor" }
    error_message = "An exporter reads what runs, and nothing else."
  }
}

run "a_gateway_asks_every_model_and_may_nothing_else" {
  command = plan

  variables {
    keys        = "/run/corral/keys.json"
    has_gateway = true
  }

  assert {
    condition     = jsondecode(output.guard).clients.gateway == { models = null, requests = null, role = "client" }
    error_message = "It has all models, and the rights of a client."
  }
}

run "a_monitor_of_a_card_that_yields_may_have_an_idle_model_unloaded" {
  command = plan

  variables {
    keys        = "/run/corral/keys.json"
    has_monitor = true
    may_yield   = true
  }

  assert {
    condition     = jsondecode(output.guard).clients.monitor == { models = [], requests = 4, role = "steward" }
    error_message = "It must get this right, and no answer of a model."
  }
}

run "the_knobs_reach_the_guard" {
  command = plan

  variables {
    body_mib            = 8
    drain_seconds       = 0
    image_hosts         = ["images.example:8443"]
    internal_key        = { env = "SWAP_KEY" }
    retry_after_seconds = 5
    peers               = { p40 = { host = "llama-swap-p40.llama-cpp.svc", port = 8080, models = ["v.1"] } }
  }

  assert {
    condition = (
      jsondecode(output.guard).body_mib == 8
      && jsondecode(output.guard).drain_seconds == 0
      && jsondecode(output.guard).image_hosts == ["images.example:8443"]
      && jsondecode(output.guard).internal_key_env == "SWAP_KEY"
      && !can(jsondecode(output.guard).internal_key_file)
      && jsondecode(output.guard).peers == { p40 = { host = "llama-swap-p40.llama-cpp.svc", port = 8080, models = ["v.1"] } }
      && jsondecode(output.guard).retry_after_seconds == 5
    )
    error_message = "Each knob must be in the document."
  }
}

run "adapters_are_named_below_their_model" {
  command = plan

  variables {
    chosen_versions = "/run/corral/adapters.json"
    models = {
      chat = { intent = { aliases = [], adapters = [{}, { name = "red", version = "v2" }, { name = "red" }, { name = "green" }] } }
    }
  }

  assert {
    condition = jsondecode(output.guard).adapters == {
      "chat:green" = { model = "chat", versions = ["v1"] }
      "chat:red"   = { model = "chat", versions = ["v2", "v1"] }
    }
    error_message = "An adapter has a name, and its versions in the order of the file; one without a name is no choice."
  }

  assert {
    condition     = jsondecode(output.guard).chosen_versions == "/run/corral/adapters.json"
    error_message = "The guard must read the versions that were chosen."
  }
}

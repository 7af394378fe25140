variables {
  catalog = "tests/catalogs/good"
  store   = "/srv/models"
}

run "a_catalog_is_rendered" {
  command = plan

  assert {
    condition     = join(" ", keys(yamldecode(output.llama_swap_config).models)) == "chat look.1"
    error_message = "Each file of models/ must become a model, named as the file without .yaml."
  }

  assert {
    condition     = join(" ", output.models[1].modalities) == "text image" && output.models[1].group == "eyes"
    error_message = "The model list must equal the intents."
  }
}

run "the_variables_reach_the_configuration" {
  command = plan

  variables {
    engine     = "/opt/llama.cpp/llama-server"
    start_port = 6100
    store      = "/mnt/models"
  }

  assert {
    condition     = strcontains(yamldecode(output.llama_swap_config).models.chat.cmd, " -- /opt/llama.cpp/llama-server\n-m /mnt/models/chat/model.gguf\n")
    error_message = "The engine and the store must be in every command."
  }

  assert {
    condition     = yamldecode(output.llama_swap_config).startPort == 6100
    error_message = "The first port must be the one asked for."
  }
}

run "the_preflight_of_this_clone_stands_in_front_of_every_engine" {
  command = plan

  assert {
    condition = alltrue([
      for model in values(yamldecode(output.llama_swap_config).models) :
      startswith(model.cmd, abspath("../../modules/llama-swap-config/preflight.sh"))
    ])
    error_message = "Every command must begin with the preflight, by an absolute path."
  }

  assert {
    condition     = strcontains(yamldecode(output.llama_swap_config).models.chat.cmd, "\n--model chat\n--need-mib 600 -- llama-server\n")
    error_message = "The preflight must compare with the model's seat."
  }
}

run "without_a_preflight_nothing_stands_in_front" {
  command = plan

  variables {
    preflight = null
  }

  assert {
    condition     = startswith(yamldecode(output.llama_swap_config).models.chat.cmd, "llama-server\n")
    error_message = "Null must take the preflight away."
  }
}

run "the_models_are_seated_on_their_card" {
  command = plan

  assert {
    condition     = output.seating.cards.laptop.tenants == { desktop = 800 } && output.seating.cards.laptop.groups.eyes.models == { "look.1" = 700 }
    error_message = "The chart must have the lock's card, and its models on it."
  }
}

run "without_a_door_llama_swap_takes_every_request" {
  command = plan

  assert {
    condition     = output.caddy_config == null && output.guard_config == null && !can(yamldecode(output.llama_swap_config).apiKeys)
    error_message = "There must be no key where nothing would send it."
  }
}

run "behind_a_door_llama_swap_takes_only_the_doors_requests" {
  command = plan

  variables {
    door = { folder = "/run/corral", hosts = ["localhost"], keys = "/run/keys.json", port = 8080, swap_port = 5799, tls = {} }
  }

  assert {
    condition     = yamldecode(output.llama_swap_config).apiKeys == ["$${env.CORRAL_SWAP_KEY}"]
    error_message = "llama-swap must require the key that the guard sends."
  }

  assert {
    condition = (
      jsondecode(output.guard_config).upstream == { host = "127.0.0.1", port = 5799 }
      && jsondecode(output.guard_config).listen == { unix = "/run/corral/guard.sock" }
      && jsondecode(output.guard_config).internal_key_file == "/run/corral/llama-swap.key"
    )
    error_message = "The guard must be between Caddy and llama-swap."
  }

  assert {
    condition     = jsondecode(output.guard_config).clients.desk == { models = ["chat"], requests = 2, role = "client" }
    error_message = "The clients must be those of the lock."
  }

  assert {
    condition = (
      jsondecode(output.caddy_config).apps.http.servers.door.listen == ["127.0.0.1:8080"]
      && jsondecode(output.caddy_config).apps.tls.certificates.automate == ["localhost"]
    )
    error_message = "Caddy must listen where the operator wants it, with TLS."
  }
}

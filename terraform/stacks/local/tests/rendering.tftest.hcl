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
    condition     = output.models[1].modalities == ["text", "image"] && output.models[1].slot == "eyes"
    error_message = "The model list must say what the intents say."
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
    condition     = startswith(yamldecode(output.llama_swap_config).models.chat.cmd, "/opt/llama.cpp/llama-server\n-m /mnt/models/chat/model.gguf\n")
    error_message = "The engine and the store must be in every command."
  }

  assert {
    condition     = yamldecode(output.llama_swap_config).startPort == 6100
    error_message = "The first port must be the one asked for."
  }
}

# A model on vLLM is placed beside llama-swap, which passes its requests on.

mock_provider "kubernetes" {}

variables {
  catalog = "tests/catalogs/vllm"
  store   = { nfs = { server = "nas", path = "/export/models" } }
}

run "it_has_a_pod_of_its_own_and_llama_swap_does_not_run_it" {
  command = plan

  assert {
    condition     = keys(module.vllm) == ["chat"] && local.vllm_names == { chat = "vllm-chat" }
    error_message = "The model with engine: vllm must have a pod."
  }

  assert {
    condition     = keys(yamldecode(module.llama_swap_config["first"].yaml).models) == ["look.1"]
    error_message = "llama-swap must not start what vLLM serves."
  }
}

run "its_names_lead_to_it_through_the_same_door" {
  command = plan

  assert {
    condition     = toset(yamldecode(module.llama_swap_config["first"].yaml).peers["vllm-chat"].models) == toset(["chat", "triage"])
    error_message = "The id and each alias must be passed on."
  }

  assert {
    condition     = yamldecode(module.llama_swap_config["first"].yaml).peers["vllm-chat"].proxy == "http://vllm-chat.llama-cpp.svc:8000"
    error_message = "Requests must go to the Service of the pod."
  }

  assert {
    condition     = jsondecode(module.door["first"].guard).models == { chat = "chat", triage = "chat", "look.1" = "look.1" }
    error_message = "The door must know the model as before, with its keys and limits."
  }
}

run "its_seat_counts_beside_the_others" {
  command = plan

  assert {
    condition     = keys(output.seating.cards.t4.groups) == ["chat", "eyes"] && output.seating.cards.t4.groups.chat.mib == 600
    error_message = "A model that stays loaded must have a group of its own."
  }
}

run "litellm_has_its_names_and_asks_the_same_door" {
  command = plan

  variables {
    gateway = {}
  }

  assert {
    condition     = yamldecode(module.gateway_config[0].yaml).model_list[*].model_name == ["chat", "triage", "look.1"]
    error_message = "A gateway must have what vLLM serves, by its id and its aliases."
  }

  assert {
    condition = alltrue([for one in module.gateway_config[0].model_list :
      one.litellm_params.api_base == "${module.llama_swap["first"].endpoint}/v1" if contains(["chat", "triage"], one.model_name)
    ]) && module.gateway_config[0].model_list[1].litellm_params.model == "openai/chat"
    error_message = "Its requests must pass the door, and ask for the id."
  }
}

run "without_such_a_model_there_is_no_pod" {
  command = plan

  variables {
    catalog = "tests/catalogs/good"
  }

  assert {
    condition     = length(module.vllm) == 0 && !contains(keys(yamldecode(module.llama_swap_config["first"].yaml)), "peers")
    error_message = "A catalog without vLLM must be placed as before."
  }
}

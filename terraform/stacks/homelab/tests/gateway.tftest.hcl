# LiteLLM in front of llama-swap, where the operator wants it.

mock_provider "kubernetes" {}

variables {
  catalog = "tests/catalogs/good"
  store   = { nfs = { server = "nas", path = "/export/models" } }
}

run "without_the_variable_there_is_none" {
  command = plan

  assert {
    condition     = length(module.gateway) == 0 && output.gateway == null && !can(jsondecode(module.door["first"].guard).clients.gateway)
    error_message = "No object, no key and no way in may be there for it."
  }
}

run "without_its_image_it_is_refused" {
  command = plan

  variables {
    gateway = {}
  }

  expect_failures = [output.images]

  assert {
    condition     = !local.images_are_named
    error_message = "not by the rule images_are_named"
  }
}

run "it_has_the_models_of_the_lock_and_its_key_for_the_door" {
  command = plan

  variables {
    catalog  = "tests/catalogs/gateway"
    gateway  = { allowed_namespaces = ["open-webui"], answer_seconds = 100 }
    timeouts = { load_seconds = 600 }
  }

  assert {
    condition     = yamldecode(module.gateway_config[0].yaml).model_list[*].model_name == ["chat", "triage", "look.1"]
    error_message = "Its models must be those of the lock."
  }

  assert {
    condition     = alltrue([for one in module.gateway_config[0].model_list : one.litellm_params.timeout == 700]) && module.gateway_config[0].model_list[0].litellm_params.api_key == "os.environ/CORRAL_DOOR_KEY"
    error_message = "It must wait for a load of this cluster, with its own key."
  }

  assert {
    condition     = jsondecode(module.door["first"].guard).clients.gateway.role == "client"
    error_message = "The door must know it."
  }

  assert {
    condition     = output.gateway == { endpoint = "http://gateway.llama-cpp.svc.cluster.local:4000", secret = "corral-gateway" }
    error_message = "The outputs must name its address and its Secret."
  }
}

# What is refused; each has a sibling in pod.tftest.hcl that passes.

mock_provider "kubernetes" {}

variables {
  model     = "qwen3-8b"
  name      = "vllm-qwen3-8b"
  namespace = "llama-cpp"
  claim     = "models-1a2b3c4d"
  image     = "vllm/vllm-openai:v0.32.0@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  files     = [{ size = 1 }]
  argv      = ["vllm", "serve", "$${STORE}/qwen3-8b"]
}

run "an_image_without_a_digest_is_refused" {
  command = plan

  variables {
    image = "vllm/vllm-openai:v0.32.0"
  }

  expect_failures = [var.image]
}

run "a_name_that_is_too_long_for_a_pod_is_refused" {
  command = plan

  variables {
    name = "vllm-a-model-with-a-name-that-is-longer-than-what-fits"
  }

  expect_failures = [var.name]
}

run "a_name_that_no_service_may_have_is_refused" {
  command = plan

  variables {
    name = "vllm-qwen2.5-7b"
  }

  expect_failures = [var.name]
}

run "a_load_of_no_time_is_refused" {
  command = plan

  variables {
    load_seconds = 5
  }

  expect_failures = [var.load_seconds]
}

run "every_pod_of_the_namespace_is_refused" {
  command = plan

  variables {
    from = {}
  }

  expect_failures = [var.from]
}

run "a_command_line_of_another_engine_is_refused" {
  command = plan

  variables {
    argv = ["llama-server", "-m", "x"]
  }

  assert {
    condition     = !local.argv_is_of_vllm
    error_message = "Only vLLM runs here."
  }

  expect_failures = [kubernetes_deployment_v1.vllm]
}

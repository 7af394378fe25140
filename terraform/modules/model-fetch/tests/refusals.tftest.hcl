# What is refused.  The siblings that pass are in job.tftest.hcl.

mock_provider "kubernetes" {}

variables {
  namespace = "llama-cpp"
  claim     = "models"
  image     = "python:3.13-slim@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  models = { chat = {
    repo     = "example/chat-GGUF"
    revision = "0123456789abcdef0123456789abcdef01234567"
    files    = [{ path = "chat.gguf", role = "model", size = 1024, sha256 = "bb" }]
  } }
}

run "an_image_without_digest_is_refused" {
  command = plan

  variables {
    image = "python:3.13-slim"
  }

  expect_failures = [var.image]
}

run "an_image_with_half_a_digest_is_refused" {
  command = plan

  variables {
    image = "python:3.13-slim@sha256:2222"
  }

  expect_failures = [var.image]
}

run "a_model_on_the_operators_disk_is_refused" {
  command = plan

  variables {
    models = { mine = {
      repo     = null
      revision = null
      files    = [{ path = "mine.gguf", role = "model", size = 1024, sha256 = "bb" }]
    } }
  }

  expect_failures = [terraform_data.models_come_from_a_hub]
}

run "a_hub_that_is_no_address_is_refused" {
  command = plan

  variables {
    hub = "hub.home.arpa"
  }

  expect_failures = [var.hub]
}

run "a_token_in_place_of_its_secrets_name_is_refused" {
  command = plan

  variables {
    hf_token_secret = "hf_AbCdEf"
  }

  expect_failures = [var.hf_token_secret]
}

run "a_folder_that_is_no_agent_is_refused" {
  command = plan

  variables {
    agent = "tests"
  }

  expect_failures = [var.agent]
}

run "no_time_at_all_is_refused" {
  command = plan

  variables {
    timeout_minutes = 0
  }

  expect_failures = [var.timeout_minutes]
}

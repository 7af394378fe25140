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

  expect_failures = [output.program]

  assert {
    condition     = !local.models_come_from_a_hub
    error_message = "not by the rule models_come_from_a_hub"
  }
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

run "a_download_of_more_than_a_month_is_refused" {
  command = plan

  variables {
    timeout_minutes = 44641
  }

  expect_failures = [var.timeout_minutes]
}

run "a_hub_at_a_private_address_is_refused" {
  command = plan

  variables {
    hub = "http://192.168.1.20:8000"
  }

  expect_failures = [output.program]

  assert {
    condition     = !local.private_hub_has_its_addresses
    error_message = "not by the rule private_hub_has_its_addresses"
  }
}

run "a_hub_at_an_address_of_carrier_grade_nat_is_refused" {
  command = plan

  variables {
    hub = "https://100.64.0.9"
  }

  expect_failures = [output.program]

  assert {
    condition     = !local.private_hub_has_its_addresses
    error_message = "not by the rule private_hub_has_its_addresses"
  }
}

run "a_hub_at_a_link_local_address_is_refused" {
  command = plan

  variables {
    hub = "http://169.254.169.254"
  }

  expect_failures = [output.program]

  assert {
    condition     = !local.private_hub_has_its_addresses
    error_message = "not by the rule private_hub_has_its_addresses"
  }
}

run "a_hub_at_a_local_ipv6_address_is_refused" {
  command = plan

  variables {
    hub = "http://[fd00::20]:8000"
  }

  expect_failures = [output.program]

  assert {
    condition     = !local.private_hub_has_its_addresses
    error_message = "not by the rule private_hub_has_its_addresses"
  }
}

run "a_hub_on_the_own_machine_is_refused" {
  command = plan

  variables {
    hub = "http://localhost:8000"
  }

  expect_failures = [output.program]

  assert {
    condition     = !local.private_hub_has_its_addresses
    error_message = "not by the rule private_hub_has_its_addresses"
  }
}

run "a_hub_with_a_name_that_is_never_public_is_refused" {
  command = plan

  variables {
    hub = "https://Hub.Home.Arpa"
  }

  expect_failures = [output.program]

  assert {
    condition     = !local.private_hub_has_its_addresses
    error_message = "not by the rule private_hub_has_its_addresses"
  }
}

run "a_hub_in_the_cluster_is_refused" {
  command = plan

  variables {
    hub = "http://hub.models.svc"
  }

  expect_failures = [output.program]

  assert {
    condition     = !local.private_hub_has_its_addresses
    error_message = "not by the rule private_hub_has_its_addresses"
  }
}

run "a_private_hub_outside_of_its_networks_is_refused" {
  command = plan

  variables {
    hub       = "http://192.168.1.20:8000"
    hub_cidrs = ["192.168.2.0/24"]
  }

  expect_failures = [output.program]

  assert {
    condition     = !local.private_hub_has_its_addresses
    error_message = "not by the rule private_hub_has_its_addresses"
  }
}

run "an_address_without_a_prefix_length_is_refused" {
  command = plan

  variables {
    hub_cidrs = ["192.168.1.20"]
  }

  expect_failures = [var.hub_cidrs]
}

run "a_metadata_address_is_refused" {
  command = plan

  variables {
    hub_cidrs = ["169.254.169.254/32"]
  }

  expect_failures = [var.hub_cidrs]
}

run "a_network_around_link_local_addresses_is_refused" {
  command = plan

  variables {
    hub_cidrs = ["192.168.1.20/32", "128.0.0.0/1"]
  }

  expect_failures = [var.hub_cidrs]
}

run "every_address_is_refused" {
  command = plan

  variables {
    hub_cidrs = ["0.0.0.0/0"]
  }

  expect_failures = [var.hub_cidrs]
}

run "a_link_local_ipv6_network_is_refused" {
  command = plan

  variables {
    hub_cidrs = ["fe80::1/128"]
  }

  expect_failures = [var.hub_cidrs]
}

run "every_ipv6_address_is_refused" {
  command = plan

  variables {
    hub_cidrs = ["::/0"]
  }

  expect_failures = [var.hub_cidrs]
}

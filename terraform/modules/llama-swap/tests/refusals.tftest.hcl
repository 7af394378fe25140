# What is refused.  The siblings that pass are in pod.tftest.hcl.

mock_provider "kubernetes" {}

variables {
  api_key_env = "CORRAL_SWAP_KEY"
  caddy       = "{\"admin\": {}}"
  guard       = "{\"version\": 1}"
  door_image  = "caddy:2.11-alpine@sha256:3333333333333333333333333333333333333333333333333333333333333333"
  guard_image = "python:3.13-slim@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  namespace   = "llama-cpp"
  claim       = "models"
  config      = "models: {a: {}}"
  image       = "example/llama-swap:v1@sha256:1111111111111111111111111111111111111111111111111111111111111111"
  holders     = "# shellcheck shell=sh\n"
  preflight   = "#!/bin/sh\n"
  models      = { a = { argv = ["llama-server"], files = [], intent = { cache_ram_mib = 0, group = "main" }, predicted = { host = { weights = 1 } } } }
}

run "an_image_without_digest_is_refused" {
  command = plan

  variables {
    image = "example/llama-swap:v1"
  }

  expect_failures = [var.image]
}

run "an_image_with_half_a_digest_is_refused" {
  command = plan

  variables {
    image = "example/llama-swap:v1@sha256:11111111"
  }

  expect_failures = [var.image]
}

run "an_image_with_more_than_a_digest_is_refused" {
  command = plan

  variables {
    image = "example/llama-swap:v1@sha256:11111111111111111111111111111111111111111111111111111111111111112"
  }

  expect_failures = [var.image]
}

run "a_namespace_that_cannot_exist_is_refused" {
  command = plan

  variables {
    allowed_namespaces = ["litellm", "*"]
  }

  expect_failures = [var.allowed_namespaces]
}

run "a_drain_of_half_a_second_is_refused" {
  command = plan

  variables {
    drain_seconds = 0.5
  }

  expect_failures = [var.drain_seconds]
}

run "a_drain_of_more_than_a_day_is_refused" {
  command = plan

  variables {
    drain_seconds = 86401
  }

  expect_failures = [var.drain_seconds]
}

run "a_door_without_digest_is_refused" {
  command = plan

  variables {
    door_image = "caddy:2.11-alpine"
  }

  expect_failures = [var.door_image]
}

run "a_guard_without_digest_is_refused" {
  command = plan

  variables {
    guard_image = "python:3.13-slim"
  }

  expect_failures = [var.guard_image]
}

run "a_folder_without_the_guard_is_refused" {
  command = plan

  variables {
    guard_files = "tests"
  }

  expect_failures = [var.guard_files]
}

run "an_image_host_at_every_address_is_refused" {
  command = plan

  variables {
    image_hosts = { "images.home.arpa" = ["0.0.0.0/0"] }
  }

  expect_failures = [var.image_hosts]
}

run "an_image_host_without_address_is_refused" {
  command = plan

  variables {
    image_hosts = { "images.home.arpa" = [] }
  }

  expect_failures = [var.image_hosts]
}

run "an_image_host_where_a_cloud_keeps_its_secrets_is_refused" {
  command = plan

  variables {
    image_hosts = { "images.home.arpa" = ["169.254.169.254/32"] }
  }

  expect_failures = [var.image_hosts]
}

run "an_ingress_and_a_gateway_at_a_time_are_refused" {
  command = plan

  variables {
    expose = { hostname = "llm.home.arpa", from_namespace = "x", ingress_class = "nginx", gateway = { name = "home", namespace = "gateways" } }
  }

  expect_failures = [var.expose]
}

run "a_certificate_for_a_gateway_is_refused" {
  command = plan

  variables {
    expose = { hostname = "llm.home.arpa", from_namespace = "x", tls_secret = "llm-tls", gateway = { name = "home", namespace = "gateways" } }
  }

  expect_failures = [var.expose]
}

run "a_name_with_a_star_is_refused" {
  command = plan

  variables {
    expose = { hostname = "*.home.arpa", from_namespace = "x", ingress_class = "nginx" }
  }

  expect_failures = [var.expose]
}

run "cores_that_are_no_number_are_refused" {
  command = plan

  variables {
    cpu = { request = "two" }
  }

  expect_failures = [var.cpu]
}

run "a_request_of_more_cores_than_the_limit_is_refused" {
  command = plan

  variables {
    cpu = { request = "4500m" }
  }

  expect_failures = [var.cpu]
}

run "half_a_minute_for_the_rollout_is_refused" {
  command = plan

  variables {
    rollout_minutes = 0.5
  }

  expect_failures = [var.rollout_minutes]
}

run "a_priority_class_that_cannot_exist_is_refused" {
  command = plan

  variables {
    priority_class = "Very High"
  }

  expect_failures = [var.priority_class]
}

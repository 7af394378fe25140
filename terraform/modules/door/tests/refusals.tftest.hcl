# Each refusal; its siblings that pass are in caddy.tftest.hcl and guard.tftest.hcl.

variables {
  guard        = { unix = "/run/corral/guard.sock" }
  hosts        = ["localhost"]
  internal_key = { file = "/run/corral/internal-key" }
  listen       = "127.0.0.1:8080"
  models       = { chat = { intent = { aliases = [] } } }
  upstream     = { port = 5799 }
}

run "clients_without_keys_are_refused" {
  command = plan

  variables {
    clients = { desk = { requests = 2 } }
  }

  expect_failures = [output.guard]

  assert {
    condition     = !local.clients_have_keys
    error_message = "not by the rule clients_have_keys"
  }
}

run "a_monitor_without_keys_is_refused" {
  command = plan

  variables {
    has_monitor = true
  }

  expect_failures = [output.guard]

  assert {
    condition     = !local.clients_have_keys
    error_message = "not by the rule clients_have_keys"
  }
}

run "a_gateway_without_keys_is_refused" {
  command = plan

  variables {
    has_gateway = true
  }

  expect_failures = [output.guard]

  assert {
    condition     = !local.clients_have_keys
    error_message = "not by the rule clients_have_keys"
  }
}

run "a_right_to_unload_without_an_exporter_is_refused" {
  command = plan

  variables {
    keys      = "/run/corral/keys.json"
    may_yield = true
  }

  expect_failures = [var.may_yield]
}

run "a_client_called_monitor_is_refused" {
  command = plan

  variables {
    keys    = "/run/corral/keys.json"
    clients = { monitor = { requests = 2 } }
  }

  expect_failures = [var.clients]
}

run "a_client_of_an_unknown_model_is_refused" {
  command = plan

  variables {
    keys    = "/run/corral/keys.json"
    clients = { desk = { models = ["chat", "gone"], requests = 2 } }
  }

  expect_failures = [output.guard]

  assert {
    condition     = !local.clients_name_known_models
    error_message = "not by the rule clients_name_known_models"
  }
}

run "a_client_called_operator_is_refused" {
  command = plan

  variables {
    keys    = "/run/corral/keys.json"
    clients = { operator = { requests = 2 } }
  }

  expect_failures = [var.clients]
}

run "a_guard_on_every_address_is_refused" {
  command = plan

  variables {
    guard = { host = "0.0.0.0", port = 8081 }
  }

  expect_failures = [var.guard]
}

run "a_guard_with_a_socket_and_a_port_is_refused" {
  command = plan

  variables {
    guard = { unix = "/run/corral/guard.sock", host = "127.0.0.1", port = 8081 }
  }

  expect_failures = [var.guard]
}

run "a_guard_at_a_relative_socket_is_refused" {
  command = plan

  variables {
    guard = { unix = "guard.sock" }
  }

  expect_failures = [var.guard]
}

run "a_llama_swap_that_others_reach_is_refused" {
  command = plan

  variables {
    upstream = { host = "10.0.0.7", port = 5799 }
  }

  expect_failures = [var.upstream]
}

run "no_host_is_refused" {
  command = plan

  variables {
    hosts = []
  }

  expect_failures = [var.hosts]
}

run "a_host_for_everything_is_refused" {
  command = plan

  variables {
    hosts = ["*.lan"]
  }

  expect_failures = [var.hosts]
}

run "a_host_with_a_port_is_refused" {
  command = plan

  variables {
    hosts = ["localhost:8080"]
  }

  expect_failures = [var.hosts]
}

run "an_image_host_with_a_path_is_refused" {
  command = plan

  variables {
    image_hosts = ["images.example/a"]
  }

  expect_failures = [var.image_hosts]
}

run "an_internal_key_from_nowhere_is_refused" {
  command = plan

  variables {
    internal_key = {}
  }

  expect_failures = [var.internal_key]
}

run "keys_at_a_relative_path_are_refused" {
  command = plan

  variables {
    keys = "keys.json"
  }

  expect_failures = [var.keys]
}

run "an_address_without_a_port_is_refused" {
  command = plan

  variables {
    listen = "127.0.0.1"
  }

  expect_failures = [var.listen]
}

run "another_scheme_is_refused" {
  command = plan

  variables {
    public_scheme = "ftp"
  }

  expect_failures = [var.public_scheme]
}

run "a_certificate_without_its_key_is_refused" {
  command = plan

  variables {
    tls = { certificate = "/etc/tls/tls.crt" }
  }

  expect_failures = [var.tls]
}

run "a_certificate_that_caddy_would_expand_is_refused" {
  command = plan

  variables {
    tls = { certificate = "/etc/{env.HOME}/tls.crt", key = "/etc/tls/tls.key" }
  }

  expect_failures = [var.tls]
}

run "a_body_of_nothing_is_refused" {
  command = plan

  variables {
    body_mib = 0
  }

  expect_failures = [var.body_mib]
}

run "half_a_second_of_drain_is_refused" {
  command = plan

  variables {
    drain_seconds = 0.5
  }

  expect_failures = [var.drain_seconds]
}

run "a_retry_at_once_is_refused" {
  command = plan

  variables {
    retry_after_seconds = 0
  }

  expect_failures = [var.retry_after_seconds]
}

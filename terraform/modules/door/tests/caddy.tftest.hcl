# What Caddy is given: each part of its configuration that a request meets.

variables {
  guard        = { unix = "/run/corral/guard.sock" }
  hosts        = ["127.0.0.1", "localhost", "::1"]
  internal_key = { file = "/run/corral/internal-key" }
  listen       = "127.0.0.1:8080"
  models       = { chat = { intent = { aliases = [] } } }
  upstream     = { port = 5799 }
}

run "it_listens_where_it_is_asked_to" {
  command = plan

  assert {
    condition     = jsondecode(output.caddy).apps.http.servers.door.listen == ["127.0.0.1:8080"]
    error_message = "Nothing else may be listened at."
  }

  assert {
    condition     = jsondecode(output.caddy).admin == { disabled = true, config = { persist = false } }
    error_message = "There must be no admin endpoint, and no copy of the configuration on disk."
  }
}

run "a_request_for_another_host_is_refused_first" {
  command = plan

  assert {
    condition = (
      jsondecode(output.caddy).apps.http.servers.door.routes[0].match == [{ not = [{ host = ["127.0.0.1", "localhost", "::1"] }] }]
      && jsondecode(output.caddy).apps.http.servers.door.routes[0].handle[1].status_code == "421"
      && jsondecode(output.caddy).apps.http.servers.door.routes[0].terminal
    )
    error_message = "Only the hosts that were given may be served, and the rest gets 421."
  }
}

run "a_page_of_another_origin_is_refused_second" {
  command = plan

  assert {
    condition = jsondecode(output.caddy).apps.http.servers.door.routes[1].match == [
      { header = { Origin = [] }, not = [{ vars = { "{http.request.header.Origin}" = ["http://{http.request.hostport}"] } }] },
      { header = { Sec-Fetch-Site = [] }, not = [{ header = { Sec-Fetch-Site = ["same-origin", "none"] } }] },
    ]
    error_message = "An Origin must be that of the request, and a page must be of this site."
  }

  assert {
    condition     = jsondecode(output.caddy).apps.http.servers.door.routes[1].handle[1].status_code == "403"
    error_message = "A foreign page must get 403."
  }
}

run "an_ingress_that_ends_tls_decides_the_origin" {
  command = plan

  variables {
    public_scheme = "https"
  }

  assert {
    condition     = strcontains(output.caddy, "https://{http.request.hostport}") && !strcontains(output.caddy, "tls_connection_policies")
    error_message = "The origin must be https, and the door itself must not speak TLS."
  }
}

run "a_body_is_bounded_and_an_answer_is_a_stream" {
  command = plan

  variables {
    body_mib = 8
  }

  assert {
    condition     = jsondecode(output.caddy).apps.http.servers.door.routes[2].handle[1] == { handler = "request_body", max_size = 8388608 }
    error_message = "The largest body must be the one asked for."
  }

  assert {
    condition     = jsondecode(output.caddy).apps.http.servers.door.routes[2].handle[2].flush_interval == -1
    error_message = "Each chunk of an answer must leave at once."
  }
}

run "the_guard_is_reached_by_its_socket" {
  command = plan

  assert {
    condition     = jsondecode(output.caddy).apps.http.servers.door.routes[2].handle[2].upstreams == [{ dial = "unix/guard.sock" }]
    error_message = "Caddy runs in the folder of the socket: an absolute path may be too long for one."
  }
}

run "in_a_pod_the_guard_is_reached_by_its_port" {
  command = plan

  variables {
    guard  = { host = "127.0.0.1", port = 8081 }
    listen = ":8080"
  }

  assert {
    condition     = jsondecode(output.caddy).apps.http.servers.door.routes[2].handle[2].upstreams == [{ dial = "127.0.0.1:8081" }]
    error_message = "The guard's address must be the one asked for."
  }
}

run "no_logger_prints_the_headers_of_a_request" {
  command = plan

  assert {
    condition     = jsondecode(output.caddy).logging.logs.default.exclude == ["http.log.error", "http.handlers.reverse_proxy"]
    error_message = "These print x-api-key as it was sent."
  }

  assert {
    condition     = !can(jsondecode(output.caddy).apps.http.servers.door.logs)
    error_message = "The access log is the guard's."
  }
}

run "without_tls_there_is_no_authority" {
  command = plan

  assert {
    condition     = keys(jsondecode(output.caddy).apps) == ["http"] && jsondecode(output.caddy).apps.http.servers.door.automatic_https.disable
    error_message = "No certificate must be asked for."
  }
}

run "tls_without_files_is_by_an_authority_of_its_own" {
  command = plan

  variables {
    tls = {}
  }

  assert {
    condition = (
      jsondecode(output.caddy).apps.tls.automation.policies == [{ issuers = [{ module = "internal" }] }]
      && jsondecode(output.caddy).apps.tls.certificates == { automate = ["127.0.0.1", "localhost", "::1"] }
      && jsondecode(output.caddy).apps.http.servers.door.tls_connection_policies == [{}]
    )
    error_message = "Each host must have a certificate by the internal issuer, and the server must speak TLS."
  }

  assert {
    condition     = jsondecode(output.caddy).apps.pki.certificate_authorities.local.install_trust == false
    error_message = "The machine's own list of authorities must be left alone."
  }

  assert {
    condition     = strcontains(output.caddy, "https://{http.request.hostport}")
    error_message = "With TLS, the origin of a page of this server is https."
  }
}

run "tls_with_files_is_with_these" {
  command = plan

  variables {
    tls = { certificate = "/etc/tls/tls.crt", key = "/etc/tls/tls.key" }
  }

  assert {
    condition = (
      jsondecode(output.caddy).apps.tls == { certificates = { load_files = [{ certificate = "/etc/tls/tls.crt", key = "/etc/tls/tls.key" }] } }
      && !can(jsondecode(output.caddy).apps.pki)
    )
    error_message = "Exactly the operator's certificate must be used, and no authority made."
  }

  assert {
    condition     = jsondecode(output.caddy).apps.http.servers.door.tls_connection_policies == [{ default_sni = "localhost", fallback_sni = "localhost" }]
    error_message = "A client that names an address must get the certificate, too."
  }
}

run "a_certificate_is_found_by_the_first_name_of_the_operators" {
  command = plan

  variables {
    hosts = ["127.0.0.1", "localhost", "::1", "llm.lan", "llm"]
    tls   = { certificate = "/etc/tls/tls.crt", key = "/etc/tls/tls.key" }
  }

  assert {
    condition     = jsondecode(output.caddy).apps.http.servers.door.tls_connection_policies == [{ default_sni = "llm.lan", fallback_sni = "llm.lan" }]
    error_message = "It is probably for that name."
  }
}

# Caddy ends TLS, bounds the size and the pace of requests, and compares Host and Origin, which a web page cannot choose:
# a page of another origin, or one whose name was rebound to this address, gets no further.

locals {
  _scheme = coalesce(var.public_scheme, var.tls == null ? "http" : "https")

  # Deferred, because the proxy adds its own later.
  _anonymous = { handler = "headers", response = { deferred = true, delete = ["Server", "Via"] } }

  _refusals = {
    host   = { status = "421", type = "invalid_request_error", code = "host-not-served", message = "This host is not served." }
    origin = { status = "403", type = "permission_error", code = "origin-not-allowed", message = "Pages of another origin are not served." }
    failed = { status = "{http.error.status_code}", type = "server_error", code = "door", message = "{http.error.status_text}" }
  }
  _refuse = { for reason, refusal in local._refusals : reason => [local._anonymous, {
    handler     = "static_response"
    status_code = refusal.status
    headers     = { Content-Type = ["application/json"] }
    body        = jsonencode({ error = { message = refusal.message, type = refusal.type, code = refusal.code } })
  }] }

  caddy = {
    admin   = { disabled = true, config = { persist = false } } # a reload is SIGUSR1
    logging = { logs = { default = { level = "WARN", exclude = local._loggers_with_headers } } }
    apps = merge({
      http = { servers = { door = merge({
        listen              = [var.listen]
        protocols           = var.tls == null ? ["h1"] : ["h1", "h2"]
        automatic_https     = { disable = true }
        read_header_timeout = "10s"
        read_min_rate       = 16384 # bytes a second of a body; no limit of time, because an answer is a stream
        max_header_bytes    = 32768
        routes = [
          { match = [{ not = [{ host = var.hosts }] }], handle = local._refuse.host, terminal = true },
          { match = local._foreign, handle = local._refuse.origin, terminal = true },
          { handle = [local._anonymous, { handler = "request_body", max_size = var.body_mib * 1048576 }, local._proxy] },
        ]
        errors = { routes = [{ handle = local._refuse.failed }] }
      }, local._tls_server) } }
    }, local._tls_apps)
  }

  _foreign = [
    { header = { Origin = [] }, not = [{ vars = { "{http.request.header.Origin}" = ["${local._scheme}://{http.request.hostport}"] } }] },
    { header = { Sec-Fetch-Site = [] }, not = [{ header = { Sec-Fetch-Site = ["same-origin", "none"] } }] },
  ]

  # These print the headers of a request, and with them keys that are not in Authorization.
  _loggers_with_headers = ["http.log.error", "http.handlers.reverse_proxy"]

  _proxy = {
    handler        = "reverse_proxy"
    upstreams      = [{ dial = var.guard.unix == null ? "${var.guard.host}:${var.guard.port}" : "unix/${basename(var.guard.unix)}" }]
    flush_interval = -1
    transport = {
      protocol     = "http"
      dial_timeout = "3s"
      compression  = false
      keep_alive   = { idle_timeout = "30s", max_idle_conns_per_host = 256 }
    }
  }

  _has_files = try(var.tls.certificate, null) != null
  # A client that names an address sends no name: it gets the certificate nevertheless, and decides.
  _own_names  = [for host in var.hosts : host if can(regex("[g-z]", host)) && host != "localhost"]
  _any_name   = { for key in ["default_sni", "fallback_sni"] : key => concat(local._own_names, ["localhost"])[0] if local._has_files }
  _tls_server = { for key, value in { tls_connection_policies = [local._any_name] } : key => value if var.tls != null }
  _tls = local._has_files ? jsonencode({
    tls = { certificates = { load_files = [{ certificate = var.tls.certificate, key = var.tls.key }] } }
    }) : jsonencode({
    tls = { certificates = { automate = var.hosts }, automation = { policies = [{ issuers = [{ module = "internal" }] }] } }
    pki = { certificate_authorities = { local = { install_trust = false } } }
  })
  _tls_apps = { for app, settings in jsondecode(local._tls) : app => settings if var.tls != null }
}

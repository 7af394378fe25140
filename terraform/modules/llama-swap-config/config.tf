# llama-swap ignores a key that it does not know: tests/known-keys.json lists those of the pinned version, and a test holds
# every key below against it.

locals {
  config = {
    healthCheckTimeout = var.health_check_timeout
    startPort          = var.start_port
    logTimeFormat      = "rfc3339"
    logToStdout        = "both" # its default keeps the reason of a failed load out of the log
    captureBuffer      = 0      # its default keeps the bodies of requests in memory
    performance        = { every = "15s" }
    routing            = { router = { use = "group", settings = { groups = local.slots } } }

    models = { for id, model in local.models : id => {
      cmd              = local.commands[id]
      proxy            = "http://127.0.0.1:$${PORT}"
      checkEndpoint    = "/health"
      aliases          = model.aliases
      ttl              = model.ttl
      concurrencyLimit = max(var.concurrency, model.parallel)
      metadata         = local.contents[id]
      capabilities     = { in = model.modalities, out = ["text"], context = model.context }
    } }
  }
}

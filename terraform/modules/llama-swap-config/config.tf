# llama-swap ignores unknown keys: tests/known-keys.json lists those of the pinned version, and a test compares every key
# below with it.

locals {
  on_cpu = { for id in keys(var.models) : id => [for model, reason in var.on_cpu : reason if model == id] }

  # An engine without a card has none by its environment: the command line stays the lock's, and prompts are not computed
  # on the card either, as they would be with -ngl 0.
  environments = { for id in keys(var.models) : id => concat(
    [for name in var.api_key_env[*] : "${name}="], # the key is llama-swap's alone
    length(local.on_cpu[id]) > 0 ? ["LLAMA_ARG_DEVICE=none", "LLAMA_ARG_MMPROJ_OFFLOAD=0"] : [],
    contains(local._on_vllm, id) ? concat(
      # Nothing is fetched and nothing is reported: https://docs.vllm.ai/en/stable/usage/usage_stats.html
      ["HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "VLLM_HOST_IP=127.0.0.1"],
      [for name in var.api_key_env[*] : "VLLM_API_KEY=$${env.${name}}"], # llama-server gets it by LLAMA_API_KEY
    ) : [],
  ) }

  config = merge({
    healthCheckTimeout = var.health_check_timeout
    startPort          = var.start_port
    logTimeFormat      = "rfc3339"
    logToStdout        = "both" # its default keeps the reason of a failed load out of the log
    captureBuffer      = 0      # its default keeps the bodies of requests in memory
    performance        = { every = "15s" }
    routing            = { router = local.router }

    models = { for id, model in var.models : id => merge({
      cmd              = local.commands[id]
      proxy            = "http://127.0.0.1:$${PORT}"
      checkEndpoint    = "/health"
      aliases          = model.intent.aliases
      ttl              = model.intent.ttl
      concurrencyLimit = max(var.concurrency, model.intent.parallel)
      capabilities = merge(
        { in = model.intent.modalities, out = model.intent.task == "chat" ? ["text"] : [], context = model.intent.context },
        { for task in [model.intent.task] : "reranker" => true if task == "rerank" },
      )

      # New weights under the same command line are a change, too; llama-swap shows them at /v1/models.
      metadata = merge(
        { revision = model.revision, sha256 = model.files[*].sha256 },
        { for reason in local.on_cpu[id] : "on_cpu" => reason },
      )
      },
      { for name in length(local.environments[id]) > 0 ? ["env"] : [] : name => local.environments[id] },
      { for name in contains(keys(local.filters), id) ? ["filters"] : [] : name => local.filters[id] },
    ) }
    }, { for name in var.api_key_env[*] : "apiKeys" => ["$${env.${name}}"] }, {
    # What another program of the cluster serves.  It gets llama-swap's own key; an answer may begin after a long wait in its queue.
    for name in length(var.peers) > 0 ? ["peers"] : [] : name => { for peer, one in var.peers : peer => merge(
      { proxy = one.proxy, models = one.models, timeouts = { responseHeader = 3600 } },
      { for key in var.api_key_env[*] : "apiKey" => "$${env.${key}}" },
    ) }
  })
}

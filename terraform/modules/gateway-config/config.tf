# A request is sent once.  LiteLLM's defaults repeat one that failed, and behind it a load that cannot succeed would start an engine for
# each repetition; they also ask every model for an answer where its health is asked for, and would load all of them, one after the other.

locals {
  # In the longest case a request waits for its model to load, and then for its whole answer.
  _timeout = var.load_seconds + var.answer_seconds

  _provider = { rerank = "hosted_vllm" } # LiteLLM's openai has no rerank

  _names    = { for id, model in var.models : id => concat([id], model.intent.aliases) }
  _adapters = { for id, model in var.models : id => distinct([for one in model.intent.adapters : "${id}:${one.name}" if one.name != null]) }

  model_list = flatten([for id, model in var.models : [for name in concat(local._names[id], local._adapters[id]) : {
    model_name = name
    litellm_params = {
      model          = "${lookup(local._provider, model.intent.task, "openai")}/${contains(local._adapters[id], name) ? name : id}"
      api_base       = var.api_base
      api_key        = var.api_key_env == null ? "none" : "os.environ/${var.api_key_env}"
      timeout        = local._timeout
      stream_timeout = local._timeout
      max_retries    = 0 # of the client of OpenAI in LiteLLM
      num_retries    = 0 # of LiteLLM's router, for this model; a LiteLLM of others may have another number for theirs
    }
    model_info = {
      mode                            = model.intent.task
      max_input_tokens                = model.intent.context
      supports_vision                 = contains(model.intent.modalities, "image")
      disable_background_health_check = true
    }
  }]])

  # A request for an adapter has none: another model's answer is no answer of the adapter.  A circle, or one that is not there, was refused by `corral lock`.
  fallbacks = flatten([for id, model in var.models : [
    for name in local._names[id] : { (name) = [model.intent.fallback] } if model.intent.fallback != null
  ]])

  config = {
    model_list = local.model_list

    litellm_settings = {
      num_retries              = 0
      request_timeout          = local._timeout
      telemetry                = false
      turn_off_message_logging = true # no prompt in a log
    }

    router_settings = {
      num_retries       = 0
      timeout           = local._timeout
      disable_cooldowns = true # a model that failed once is asked again: the refusal of its load has the reason
      fallbacks         = local.fallbacks
    }

    general_settings = merge({
      master_key                                   = "os.environ/LITELLM_MASTER_KEY"
      background_health_checks                     = false
      health_check_skip_disabled_background_models = true # GET /health asks no model either
      store_model_in_db                            = false
    }, { for name in var.database_env[*] : "database_url" => "os.environ/${name}" })
  }
}

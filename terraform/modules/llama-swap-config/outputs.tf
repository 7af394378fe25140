output "models" {
  description = "The data of each model for a gateway, sorted by id; context is tokens per request, ttl seconds."
  value = [for id, model in var.models : {
    id         = id
    adapters   = distinct([for one in model.intent.adapters : "${id}:${one.name}" if one.name != null])
    aliases    = model.intent.aliases
    context    = model.intent.context
    parallel   = model.intent.parallel
    modalities = model.intent.modalities
    task       = model.intent.task
    reasoning  = model.intent.reasoning
    group      = model.intent.group
    ttl        = model.intent.ttl
  }]
}

output "yaml" {
  description = "The llama-swap configuration, complete."
  value       = "# Rendered by Terraform from a catalog and its lock: change those, not this file.\n${yamlencode(local.config)}"

  precondition {
    condition = local.every_model_has_a_seat
    error_message = join(" ", [
      "Models without a seat: ${join(", ", local._models_without_seat)}.",
      "The preflight compares a model's need, in whole MiB, with what is free on its card. Run: corral lock",
    ])
  }
  precondition {
    condition = local.every_model_is_in_a_set_of_its_group
    error_message = join(" ", [
      "Models that are not in the sets of their group alone: ${join(", ", local._strays)}.",
      "For a model in no set llama-swap would unload all others. Run: corral lock",
    ])
  }
  precondition {
    condition = local.vllm_is_where_used
    error_message = join(" ", [
      "There is no program vllm here for ${join(", ", local._on_vllm)}.",
      "Install vLLM, and put it on PATH or name it: export VLLM=/path/to/vllm; or write engine: llama.cpp",
    ])
  }
}

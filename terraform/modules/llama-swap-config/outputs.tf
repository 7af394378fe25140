output "models" {
  description = "What a gateway needs to know of each model, sorted by id: id, aliases, context (tokens per request), parallel, modalities, reasoning, slot, ttl (seconds)."
  value = [for id, model in local.models : {
    id         = id
    aliases    = model.aliases
    context    = model.context
    parallel   = model.parallel
    modalities = model.modalities
    reasoning  = model.reasoning
    slot       = model.slot
    ttl        = model.ttl
  }]

  depends_on = [
    terraform_data.aliases_are_not_ids,
    terraform_data.aliases_are_unique,
    terraform_data.catalog_covers_the_lock,
    terraform_data.lock_covers_the_catalog,
    terraform_data.lock_exists,
    terraform_data.lock_is_fresh,
    terraform_data.lock_version_is_known,
  ]
}

output "yaml" {
  description = "The llama-swap configuration, complete."
  value       = "# Rendered by Terraform from a catalog and its lock: change those, not this file.\n${yamlencode(local.config)}"

  depends_on = [
    terraform_data.aliases_are_not_ids,
    terraform_data.aliases_are_unique,
    terraform_data.argv_has_no_placeholder_left,
    terraform_data.argv_is_llama_server,
    terraform_data.argv_takes_its_port,
    terraform_data.catalog_covers_the_lock,
    terraform_data.every_model_has_a_seat,
    terraform_data.lock_covers_the_catalog,
    terraform_data.lock_exists,
    terraform_data.lock_is_fresh,
    terraform_data.lock_version_is_known,
  ]
}

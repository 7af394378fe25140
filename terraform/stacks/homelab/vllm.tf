# Models with engine: vllm run in pods of their own, on the node of their card.  llama-swap of that card passes their requests on, so that
# clients, keys and limits stay what they are.

locals {
  vllm_names = { for id in keys(local.on_vllm) : id => "vllm-${replace(id, ".", "-")}" } # a Service's name has no dot; the catalog's rules see that they differ
  vllm_port  = 8000

  # No output of the module: `module.vllm[id]` stands for all of the module, its wait for the download included, and the ConfigMap with
  # these addresses must not come after the Job (docs/architecture/decisions/0017-config-maps-are-named-for-their-content.md).
  vllm_addresses = { for id, name in local.vllm_names : id => "http://${name}.${local.namespace}.svc:${local.vllm_port}" }
}

module "vllm" {
  source   = "../../modules/vllm"
  for_each = local.on_vllm

  model           = each.key
  argv            = each.value.argv
  files           = each.value.files
  name            = local.vllm_names[each.key]
  namespace       = local.namespace
  after           = module.model_fetch.job
  claim           = module.model_store.claim
  conventions     = local.conventions
  from            = merge({ "app.kubernetes.io/name" = "llama-swap" }, { for card in [each.value.intent.card] : "corral/card" => card if local._several })
  image           = coalesce(local.images.vllm, local._no_image) # refused: images_are_named
  load_seconds    = max(60, var.timeouts.load_seconds)
  node            = try(module.catalog.lock.cards[each.value.intent.card].node, null)
  port            = local.vllm_port
  priority_class  = var.priority_class
  rollout_minutes = var.timeouts.rollout_minutes
  runtime_class   = var.runtime_class
}

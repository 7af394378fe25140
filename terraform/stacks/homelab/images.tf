# lock.json pins the digests that the names in images.yaml had at lock time.

locals {
  _images_needed = concat(
    ["door", "fetch"],
    var.image == null ? ["llama-swap"] : [],
    var.gateway == null ? [] : ["gateway"],
    length(local.on_vllm) > 0 ? ["vllm"] : [],
  )
  _images_missing = [for name in local._images_needed : name if !can(module.catalog.lock.images[name])]

  # Refused below; this placeholder of the right shape makes that refusal the only message.
  _no_image = "refused@sha256:${sha256("")}"
  images = {
    door         = try(module.catalog.lock.images.door, local._no_image)
    fetch        = try(module.catalog.lock.images.fetch, local._no_image)
    gateway      = var.gateway == null ? null : try(module.catalog.lock.images.gateway, local._no_image)
    llama-swap   = var.image != null ? var.image : try(module.catalog.lock.images["llama-swap"], local._no_image)
    llama-server = var.image != null ? null : try(module.catalog.lock.images["llama-server"], null) # null: llama-swap's image has the engine
    vllm         = length(local.on_vllm) == 0 ? null : try(module.catalog.lock.images.vllm, null)
  }

  image_from = var.image == null ? null : "variable image"

  images_are_named         = length(local._images_missing) == 0
  one_image_has_the_engine = var.image == null || !can(module.catalog.lock.images["llama-server"])
}

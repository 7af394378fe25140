# lock.json pins the digests that the names in images.yaml had at lock time.

locals {
  _images_needed  = concat(["door", "fetch"], var.image == null ? ["llama-swap"] : [])
  _images_missing = [for name in local._images_needed : name if !can(module.catalog.images[name])]

  # Refused below; this placeholder of the right shape makes that refusal the only message.
  _no_image = "refused@sha256:${sha256("")}"
  images = {
    door         = try(module.catalog.images.door, local._no_image)
    fetch        = try(module.catalog.images.fetch, local._no_image)
    llama-swap   = var.image != null ? var.image : try(module.catalog.images["llama-swap"], local._no_image)
    llama-server = var.image != null ? null : try(module.catalog.images["llama-server"], null) # null: llama-swap's image has the engine
  }

  image_from = var.image == null ? null : "variable image"
}

resource "terraform_data" "images_are_named" {
  lifecycle {
    precondition {
      condition = length(local._images_missing) == 0
      error_message = join(" ", [
        "Not in images.yaml of the catalog: ${join(", ", local._images_missing)}. The cluster runs only images that the catalog names,",
        "e.g. llama-swap: ghcr.io/mostlygeek/llama-swap:v252-cuda-b10775-non-root, or door: caddy:2.11-alpine. Add the line, then run: corral lock",
      ])
    }

    precondition {
      condition = var.image == null || !can(module.catalog.images["llama-server"])
      error_message = join(" ", [
        "The variable image and llama-server in images.yaml both name the engine's image, and only one can run. Take image out of",
        "terraform.tfvars, or llama-server out of images.yaml and run: corral lock",
      ])
    }
  }
}

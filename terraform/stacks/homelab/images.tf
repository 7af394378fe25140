# images.yaml says which images are wanted, lock.json which bytes those names meant when they were locked.

locals {
  _images_file   = "${var.catalog}/images.yaml"
  _images_wanted = fileexists(local._images_file) ? { for name, image in try(yamldecode(file(local._images_file)), {}) : name => try(tostring(image), "") } : {}
  _images_locked = try({ for name, image in local.lock.images : name => tostring(image) }, {})
  _images_needed = var.image == null ? ["fetch", "llama-swap"] : ["fetch"]

  _images_missing = [for name in local._images_needed : name if try(local._images_wanted[name], "") == ""]
  _images_stale = [
    for name in setsubtract(local._images_needed, local._images_missing) : "${name} (wanted ${local._images_wanted[name]}, locked ${try(local._images_locked[name], "none")})"
    if !try(
      can(regex("^[^\\s@]+@sha256:[0-9a-f]{64}$", local._images_locked[name]))
      && local._images_locked[name] == (strcontains(local._images_wanted[name], "@") ? local._images_wanted[name] : "${local._images_wanted[name]}@${split("@", local._images_locked[name])[1]}"),
      false,
    )
  ]

  # Refused by the rules below; until then something of the right shape, so that theirs is the only message.
  _no_image = "refused@sha256:${sha256("")}"
  images = { for name, given in { fetch = null, llama-swap = var.image } : name => (
    given != null ? given : can(regex("^[^\\s@]+@sha256:[0-9a-f]{64}$", local._images_locked[name])) ? local._images_locked[name] : local._no_image
  ) }

  image_from = var.image == null ? null : "variable image"
}

resource "terraform_data" "images_are_named" {
  lifecycle {
    precondition {
      condition     = length(local._images_missing) == 0
      error_message = "Not in images.yaml of the catalog: ${join(", ", local._images_missing)}. The cluster runs only images that the catalog names, e.g. llama-swap: ghcr.io/mostlygeek/llama-swap:v252-cuda-b10775-non-root. Add the line, then run: corral lock"
    }
  }
}

resource "terraform_data" "images_are_locked" {
  lifecycle {
    precondition {
      condition     = local.lock == null || length(local._images_stale) == 0
      error_message = "Stale images in lock.json: ${join(", ", local._images_stale)}. An image must be locked by digest, under the name and tag in images.yaml. Run: corral lock"
    }
  }
}

variable "path" {
  description = "The catalog's folder, with models/*.yaml, cards/*.yaml and lock.json: absolute, or relative to the root module."
  type        = string
  nullable    = false

  validation {
    condition = !can(regex("[][*?{}\\\\]", var.path))
    error_message = join(" ", [
      "The catalog's path is \"${var.path}\"; it must not hold any of * ? [ ] { } \\, which Terraform takes for a pattern.",
      "Rename the folder.",
    ])
  }

  validation {
    condition     = can(regex("[][*?{}\\\\]", var.path)) || try(length(fileset(var.path, "models/[^.]*.yaml")) > 0, true) # see sources_are_listed
    error_message = "The catalog \"${var.path}\" has no models; it must be a folder with at least one models/<id>.yaml."
  }
}

variable "catalog" {
  description = "The folder that holds models/*.yaml and lock.json, absolute or relative to this stack, e.g. \"../../catalog-demo\"."
  type        = string
  nullable    = false

  validation {
    condition     = !can(regex("[][*?{}\\\\]", var.catalog))
    error_message = "The catalog's path is \"${var.catalog}\"; it must not hold any of * ? [ ] { } \\, which Terraform takes for a pattern. Rename the folder."
  }

  validation {
    condition     = can(regex("[][*?{}\\\\]", var.catalog)) || try(length(fileset(var.catalog, "models/*.yaml")) > 0, false)
    error_message = "The catalog \"${var.catalog}\" has no models; it must be a folder with at least one models/<id>.yaml."
  }
}

variable "engine" {
  description = "The llama-server to run, a name on PATH or an absolute path, e.g. \"/usr/local/bin/llama-server\"."
  type        = string
  default     = "llama-server"
  nullable    = false
}

variable "preflight" {
  description = "The script that stands in front of every engine and refuses a load for which the card has no room, absolute or relative to this stack. Null: nothing stands there."
  type        = string
  default     = "../../modules/llama-swap-config/preflight.sh"
}

variable "start_port" {
  description = "The first loopback port for a model; each further model takes the next one."
  type        = number
  default     = 5800
  nullable    = false
}

variable "store" {
  description = "The model store on this machine, an absolute path, e.g. \"/srv/models\"."
  type        = string
  nullable    = false

  validation {
    condition     = startswith(var.store, "/")
    error_message = "The store is \"${var.store}\"; it must be an absolute path, e.g. /srv/models."
  }
}

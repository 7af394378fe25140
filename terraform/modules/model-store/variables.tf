variable "name" {
  description = "The name of the volume and its claim; the volume's name also contains the namespace, and both contain a digest of the place."
  type        = string
  default     = "models"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$", var.name))
    error_message = "The store's name is \"${var.name}\"; it must be of a-z, 0-9 and -, at most 40 characters, e.g. models."
  }
}

variable "namespace" {
  description = "The namespace of the claim."
  type        = string
  nullable    = false
}

variable "size" {
  description = "The declared size of the volume. NFS and folders do not enforce it; Kubernetes requires a figure."
  type        = string
  default     = "30Gi"
  nullable    = false

  validation {
    condition     = can(regex("^[1-9][0-9]*(Mi|Gi|Ti)$", var.size))
    error_message = "The store's size is \"${var.size}\"; it must be a whole number of Mi, Gi or Ti, e.g. 30Gi."
  }
}

variable "store" {
  description = "The place of the models, exactly one of: `nfs` (an export), `local` (a folder on the GPU node), `claim` (the name of an existing claim)."
  type = object({
    nfs = optional(object({
      server        = string
      path          = string
      mount_options = optional(list(string), ["hard", "nconnect=8", "rsize=1048576", "wsize=1048576", "noatime"])
    }))
    local = optional(object({ node = string, path = string }))
    claim = optional(string)
  })
  nullable = false

  validation {
    condition = length([for place in [var.store.nfs, var.store.local, var.store.claim] : place if place != null]) == 1
    error_message = join(" ", [
      "The store names ${length([for place in [var.store.nfs, var.store.local, var.store.claim] : place if place != null])} places",
      "(${join(", ", [for kind, place in var.store : kind if place != null])}); it must name exactly one of nfs, local and claim.",
    ])
  }

  validation {
    condition     = alltrue([for path in [try(var.store.nfs.path, "/"), try(var.store.local.path, "/")] : path == null ? false : startswith(path, "/")])
    error_message = "The store's path is \"${try(var.store.nfs.path, var.store.local.path, "null")}\"; it must be absolute, e.g. /srv/models."
  }

  validation {
    condition     = try(trimspace(var.store.nfs.server), "server") != "" && try(trimspace(var.store.local.node), "node") != ""
    error_message = "The store's NFS server or node is empty; it must be a name or an address, e.g. nas.home.arpa."
  }

  validation {
    condition     = alltrue([for option in try(var.store.nfs.mount_options, []) : can(regex("^[a-z0-9_]+(=[^\\s,]+)?$", option))])
    error_message = "The store's mount options are ${join(" ", try(var.store.nfs.mount_options, []))}; each must be one option of mount, e.g. nconnect=8."
  }

  validation {
    condition     = var.store.claim == null ? true : can(regex("^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", var.store.claim))
    error_message = "The store's claim is \"${coalesce(var.store.claim, "null")}\"; it must be the name of a PersistentVolumeClaim, of a-z, 0-9, . and -."
  }
}

variable "conventions" {
  description = "What the cluster asks of all objects: labels, annotations."
  type = object({
    labels      = optional(map(string), {})
    annotations = optional(map(string), {})
  })
  default  = {}
  nullable = false
}

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
  description = "The models' place, exactly one of: `nfs` (an export), `local` (a folder on the GPU node), `claim` (its name), `storage_class` (and `size`)."
  type = object({
    nfs = optional(object({
      server        = string
      path          = string
      mount_options = optional(list(string), ["hard", "nconnect=8", "rsize=1048576", "wsize=1048576", "noatime"])
    }))
    local         = optional(object({ node = string, path = string }))
    claim         = optional(string)
    storage_class = optional(string)
    size          = optional(string)
    access_mode   = optional(string)
  })
  nullable = false

  validation {
    condition = length([for kind in ["nfs", "local", "claim", "storage_class"] : kind if var.store[kind] != null]) == 1
    error_message = join(" ", [
      "The store names ${length([for kind in ["nfs", "local", "claim", "storage_class"] : kind if var.store[kind] != null])} places",
      "(${coalesce(join(", ", [for kind, place in var.store : kind if place != null]), "nothing")});",
      "it must name exactly one of nfs, local, claim and storage_class.",
    ])
  }

  validation {
    condition     = var.store.storage_class == null ? true : can(regex("^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", var.store.storage_class))
    error_message = "The store's StorageClass is ${jsonencode(var.store.storage_class)}; it must be one of: kubectl get storageclasses"
  }

  validation {
    condition     = var.store.storage_class == null ? true : can(regex("^[1-9][0-9]*(Mi|Gi|Ti)$", var.store.size))
    error_message = "The store's size is ${coalesce(var.store.size, "not set")}; a storage_class needs one, a whole number of Mi, Gi or Ti, e.g. 200Gi."
  }

  validation {
    condition = var.store.storage_class != null || (var.store.size == null && var.store.access_mode == null)
    error_message = join(" ", [
      "The store has ${join(" and ", [for key in ["size", "access_mode"] : "${key} = ${var.store[key]}" if var.store[key] != null])},",
      "which only a volume of a storage_class has. Leave it out.",
    ])
  }

  validation {
    condition = contains(["ReadWriteOnce", "ReadWriteMany"], coalesce(var.store.access_mode, "ReadWriteOnce"))
    error_message = join(" ", [
      "The store's access mode is ${jsonencode(var.store.access_mode)}; it must be ReadWriteOnce, which is enough because all pods",
      "that mount the store are on the card's node, or ReadWriteMany.",
    ])
  }

  validation {
    condition     = alltrue([for path in [try(var.store.nfs.path, "/"), try(var.store.local.path, "/")] : path == null ? false : startswith(path, "/")])
    error_message = "The store's path is \"${try(var.store.nfs.path, var.store.local.path, "null")}\"; it must be absolute, e.g. /srv/models."
  }

  validation {
    condition     = try(trimspace(var.store.nfs.server), "server") != "" && try(trimspace(var.store.local.node), "node") != ""
    error_message = "The store's ${var.store.nfs == null ? "node" : "NFS server"} is empty; it must be a name or an address, e.g. nas.home.arpa."
  }

  validation {
    condition     = alltrue([for option in try(var.store.nfs.mount_options, []) : can(regex("^[a-z0-9_]+(=[^\\s,]+)?$", option))])
    error_message = "The store's mount options are ${join(" ", try(var.store.nfs.mount_options, []))}; each must be one option of mount, e.g. nconnect=8."
  }

  validation {
    condition     = var.store.claim == null ? true : can(regex("^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", var.store.claim))
    error_message = "The store's claim is ${jsonencode(var.store.claim)}; it must be the name of a PersistentVolumeClaim, of a-z, 0-9, . and -."
  }
}

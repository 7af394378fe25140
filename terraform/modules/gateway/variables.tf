variable "after" {
  description = "What the pod waits for, e.g. output `deployment` of the module llama-swap. The ConfigMap must not (decision 0017): no depends_on."
  type        = string
  default     = null
}

variable "allowed_namespaces" {
  description = "The namespaces whose pods may connect to LiteLLM. No other may, not even the module's own."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for name in var.allowed_namespaces : can(regex("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", name))])
    error_message = "The allowed namespaces are ${join(", ", var.allowed_namespaces)}; each must be the name of a namespace, of a-z, 0-9 and -."
  }
}

variable "config" {
  description = "The configuration of LiteLLM: output `yaml` of the module gateway-config, with this module's variables as its keys."
  type        = string
  nullable    = false
}

variable "conventions" {
  description = "What the cluster asks of all objects: labels, annotations; and of pods: pull secrets, tolerations."
  type = object({
    labels             = optional(map(string), {})
    annotations        = optional(map(string), {})
    image_pull_secrets = optional(list(string), [])
    tolerations = optional(list(object({
      key      = optional(string)
      operator = optional(string, "Equal")
      value    = optional(string)
      effect   = optional(string)
      seconds  = optional(number)
    })), [])
  })
  default  = {}
  nullable = false
}

variable "database" {
  description = "LiteLLM's PostgreSQL, for virtual keys: the Secret whose key has its address (postgresql://…), and the networks where it is. Null: none."
  type = object({
    secret = string
    key    = optional(string, "url")
    cidrs  = list(string)
    port   = optional(number, 5432)
  })
  default = null

  validation {
    condition     = var.database == null ? true : can(regex("^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", var.database.secret))
    error_message = "The database's Secret is ${jsonencode(try(var.database.secret, null))}; it must be a name of a-z, 0-9, . and -, never an address."
  }

  validation {
    condition = var.database == null ? true : length(var.database.cidrs) > 0 && alltrue([
      for cidr in var.database.cidrs : can(cidrhost(cidr, 0)) && !endswith(cidr, "/0")
    ])
    error_message = join(" ", [
      "The database's networks are ${jsonencode(try(var.database.cidrs, null))}; there must be one at least, as an address with its length,",
      "e.g. 192.168.1.30/32, and none that is every address: the pod reaches nothing else.",
    ])
  }
}

variable "door_port" {
  description = "The port of the door's pods: output `ports` of the module llama-swap."
  type        = number
  default     = 8080
  nullable    = false
}

variable "drain_seconds" {
  description = "Seconds that answers under way may go on when another pod has taken over."
  type        = number
  default     = 60
  nullable    = false

  validation {
    condition     = var.drain_seconds >= 0 && var.drain_seconds <= 86400 && floor(var.drain_seconds) == var.drain_seconds
    error_message = "The drain takes ${var.drain_seconds} s; it must be a whole number of seconds, from 0 to a day, 86400."
  }
}

variable "image" {
  description = "LiteLLM's proxy, by digest, e.g. \"ghcr.io/berriai/litellm-non_root:…@sha256:…\"; its entrypoint takes the proxy's options."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[^\\s@]+@sha256:[0-9a-f]{64}$", var.image))
    error_message = "LiteLLM's image is \"${var.image}\"; it must name a digest (…@sha256: and 64 hexadecimal digits). Run: corral lock"
  }
}

variable "memory_mib" {
  description = "The pod's request and limit, in MiB: LiteLLM holds 318 MiB when it is ready, and the bodies of its requests beside that."
  type        = object({ request = optional(number, 512), limit = optional(number, 2048) })
  default     = {}
  nullable    = false
}

variable "namespace" {
  description = "The namespace of llama-swap."
  type        = string
  nullable    = false
}

variable "rollout_minutes" {
  description = "Minutes that a new pod may take to be ready, the pull of its image included."
  type        = number
  default     = 15
  nullable    = false
}

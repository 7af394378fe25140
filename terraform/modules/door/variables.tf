variable "body_mib" {
  description = "The largest body of one request, in MiB."
  type        = number
  default     = 64
  nullable    = false

  validation {
    condition     = var.body_mib >= 1 && var.body_mib <= 1024 && floor(var.body_mib) == var.body_mib
    error_message = "The largest body is ${var.body_mib} MiB; it must be a whole number from 1 to 1024."
  }
}

variable "chosen_versions" {
  description = "The file that names the versions of adapters which `corral adapters swap` chose, an absolute path. Null: the first listed of each serves."
  type        = string
  default     = null

  validation {
    condition     = var.chosen_versions == null ? true : startswith(var.chosen_versions, "/")
    error_message = "The chosen versions are in ${jsonencode(var.chosen_versions)}; it must be an absolute path."
  }
}

variable "clients" {
  description = "The clients of the lock, by name: the ids of the models that each may use (null: all), and its requests at once. Only with keys."
  type = map(object({
    models   = optional(list(string))
    requests = number
  }))
  default  = {}
  nullable = false

  validation {
    condition     = length(setintersection(keys(var.clients), ["operator", "monitor", "gateway"])) == 0
    error_message = "A client is called \"operator\", \"monitor\" or \"gateway\"; these names are for corral's own keys. Give the client another one."
  }
}

variable "drain_seconds" {
  description = "Seconds that a request may go on after the guard was asked to end."
  type        = number
  default     = 30
  nullable    = false

  validation {
    condition     = var.drain_seconds >= 0 && floor(var.drain_seconds) == var.drain_seconds
    error_message = "The drain takes ${var.drain_seconds} s; it must be a whole number of seconds, 0 or more."
  }
}

variable "groups" {
  description = "The group of each model, by id: for one that has no room, idle ones are unloaded, those of its group first. Empty: none is."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "guard" {
  description = "Where the guard listens: a socket, as an absolute path in the folder that Caddy runs in, or an address of loopback in a pod."
  type = object({
    unix = optional(string)
    host = optional(string)
    port = optional(number)
  })
  nullable = false

  validation {
    condition = (
      var.guard.unix == null
      ? try(cidrhost("${var.guard.host}/8", 0) == "127.0.0.0" && var.guard.port >= 1 && var.guard.port <= 65535, false)
      : var.guard.host == null && var.guard.port == null && can(regex("^/[^{}]*[^{}/]$", var.guard.unix))
    )
    error_message = "The guard must have either unix, an absolute path without { and }, or host, an address that begins with 127., and port."
  }
}

variable "has_gateway" {
  description = "Whether the key of a gateway may ask every model, any number of times at once: its own clients are the gateway's. Only with keys."
  type        = bool
  default     = false
  nullable    = false
}

variable "has_monitor" {
  description = "Whether the key of an exporter may read what llama-swap runs. It gets no answer of a model. Only with keys."
  type        = bool
  default     = false
  nullable    = false
}

variable "hosts" {
  description = "The names and addresses that requests may be for, without port, e.g. [\"127.0.0.1\", \"localhost\", \"::1\"]; any other Host is refused."
  type        = list(string)
  nullable    = false

  validation {
    condition = length(var.hosts) > 0 && alltrue([
      for host in var.hosts : can(regex("^([a-z0-9]([a-z0-9.-]*[a-z0-9])?|[0-9a-f:]*:[0-9a-f:]*)$", host))
    ])
    error_message = join(" ", [
      "The hosts are [${join(", ", var.hosts)}]; each must be a name in lower case or an address, without port, * and brackets,",
      "and there must be one.",
    ])
  }
}

variable "image_hosts" {
  description = "The hosts, with a port where it is not the usual one, that the address of an image may name. None: an image comes in the request itself."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for host in var.image_hosts : can(regex("^[a-z0-9]([a-z0-9.-]{0,252})(:[0-9]{1,5})?$", host))])
    error_message = "The image hosts are [${join(", ", var.image_hosts)}]; each must be like images.example or images.example:8443, in lower case."
  }
}

variable "internal_key" {
  description = "Where the guard reads the key of llama-swap: a file, or a variable of its environment. Never the key itself."
  type = object({
    file = optional(string)
    env  = optional(string)
  })
  nullable = false

  validation {
    condition     = (var.internal_key.file == null) != (var.internal_key.env == null)
    error_message = "The internal key must have exactly one of file and env."
  }
}

variable "keys" {
  description = "The file with the sha256 of each key, an absolute path. Null: no keys, and every request has the operator's rights."
  type        = string
  default     = null

  validation {
    condition     = var.keys == null ? true : startswith(var.keys, "/")
    error_message = "The keys are in ${jsonencode(var.keys)}; it must be an absolute path."
  }
}

variable "listen" {
  description = "The public address of the door, e.g. \"127.0.0.1:8080\", or \":8080\" for every address of a pod."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^([0-9.]+|\\[[0-9a-f:]+\\])?:[0-9]{1,5}$", var.listen))
    error_message = "The door listens at \"${var.listen}\"; it must be an address and a port, e.g. 127.0.0.1:8080, or only the port, e.g. :8080."
  }
}

variable "may_yield" {
  description = "Whether the exporter's key may also have a model unloaded that serves no request. Only with has_monitor."
  type        = bool
  default     = false
  nullable    = false

  validation {
    condition     = !var.may_yield || var.has_monitor
    error_message = "A model yields only to an exporter: may_yield needs has_monitor."
  }
}

variable "models" {
  description = "The models of the lock, by id."
  type = map(object({ intent = object({
    adapters = optional(list(object({ name = optional(string), version = optional(string, "v1") })), [])
    aliases  = list(string)
    task     = optional(string, "chat")
  }) }))
  nullable = false
}

variable "peers" {
  description = "The doors of the other cards, by card: where each answers, and the ids of the models that it has. {}: all models are here."
  type        = map(object({ host = string, port = number, models = list(string) }))
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([
      for peer in values(var.peers) : can(regex("^[a-z0-9][a-z0-9.-]{0,252}$", peer.host)) && peer.port >= 1 && peer.port <= 65535
    ])
    error_message = "The peers are ${jsonencode(var.peers)}; each must have a host, a name in lower case without scheme, and a port."
  }

  validation {
    condition     = length(flatten(values(var.peers)[*].models)) == length(distinct(flatten(values(var.peers)[*].models)))
    error_message = "The peers are ${jsonencode(var.peers)}; a model can be on one card alone."
  }
}

variable "public_scheme" {
  description = "The scheme of the address that clients use, http or https. Null: https with tls, else http. An Ingress that ends TLS needs https here."
  type        = string
  default     = null

  validation {
    condition     = var.public_scheme == null ? true : contains(["http", "https"], var.public_scheme)
    error_message = "The public scheme is ${jsonencode(var.public_scheme)}; it must be http or https."
  }
}

variable "retry_after_seconds" {
  description = "Seconds after which a client may repeat a request that was refused for a reason that passes with time."
  type        = number
  default     = 30
  nullable    = false

  validation {
    condition     = var.retry_after_seconds >= 1 && floor(var.retry_after_seconds) == var.retry_after_seconds
    error_message = "A client is asked to wait for ${var.retry_after_seconds} s; it must be a whole number of seconds, 1 or more."
  }
}

variable "tls" {
  description = "TLS: the files of a certificate with its chain and of its key, absolute paths; {} for Caddy's own authority; null for none."
  type = object({
    certificate = optional(string)
    key         = optional(string)
  })
  default = null

  validation {
    condition = (
      var.tls == null ? true :
      var.tls.certificate == null ? var.tls.key == null :
      alltrue([for path in [var.tls.certificate, coalesce(var.tls.key, "-")] : can(regex("^/[^{}]+$", path))])
    )
    error_message = "TLS must have both certificate and key, absolute paths without { and }, or neither."
  }
}

variable "upstream" {
  description = "Where llama-swap listens: an address of loopback, and a port."
  type = object({
    host = optional(string, "127.0.0.1")
    port = number
  })
  nullable = false

  validation {
    condition = try(cidrhost("${var.upstream.host}/8", 0) == "127.0.0.0" && var.upstream.port >= 1 && var.upstream.port <= 65535, false)
    error_message = join(" ", [
      "llama-swap listens at ${var.upstream.host}:${var.upstream.port};",
      "it must be an address that begins with 127., so that no other machine gets past the door.",
    ])
  }
}

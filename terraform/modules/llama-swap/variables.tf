variable "after" {
  description = "What the server waits for, e.g. output `job` of the module model-fetch. The ConfigMaps must not (decision 0017): no depends_on of the module."
  type        = string
  default     = null
}

variable "allowed_namespaces" {
  description = "The namespaces whose pods may connect to llama-swap. No other may, not even the module's own."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for name in var.allowed_namespaces : can(regex("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", name))])
    error_message = "The allowed namespaces are ${join(", ", var.allowed_namespaces)}; each must be the name of a namespace, of a-z, 0-9 and -."
  }
}

variable "api_key_env" {
  description = "The variable of llama-swap's environment that `config` takes its key from: input `api_key_env` of the module llama-swap-config."
  type        = string
  nullable    = false
}

variable "body_mib" {
  description = "The largest body of one request, in MiB: input `body_mib` of the module door."
  type        = number
  default     = 64
  nullable    = false
}

variable "caddy" {
  description = "The configuration of Caddy: output `caddy` of the module door, rendered with this module's `ports` and `hosts`."
  type        = string
  nullable    = false
}

variable "card" {
  description = "The card of this pod, a label of its objects, where a catalog has several: then its pods reach each other. Null: there is one card."
  type        = string
  default     = null
}

variable "claim" {
  description = "The claim of the model store, e.g. output `claim` of the module model-store. It is mounted read-only at /models."
  type        = string
  nullable    = false
}

variable "concurrency" {
  description = "The requests that a model accepts at a time: input `concurrency` of the module llama-swap-config. llama-swap holds their bodies."
  type        = number
  default     = 10
  nullable    = false
}

variable "config" {
  description = "The configuration of llama-swap: output `yaml` of the module llama-swap-config, rendered with this module's `store` and `folder`."
  type        = string
  nullable    = false
}

variable "conventions" {
  description = "What the cluster asks of all objects: labels, annotations; and of pods: pull secrets, tolerations, and the name of the GPU's resource."
  type = object({
    gpu_resource       = optional(string, "nvidia.com/gpu")
    labels             = optional(map(string), {})
    annotations        = optional(map(string), {})
    image_pull_secrets = optional(list(string), [])
    tolerations = optional(list(object({
      key      = optional(string)
      operator = optional(string, "Equal")
      value    = optional(string)
      effect   = optional(string)
      seconds  = optional(number)
    })), [{ key = "nvidia.com/gpu", operator = "Exists" }])
  })
  default  = {}
  nullable = false
}

variable "cpu" {
  description = "Cores of llama-swap and its engines: request and limit. One is busy while a model answers, all while an image is encoded."
  type        = object({ request = optional(string, "500m"), limit = optional(string, "4") })
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for amount in values(var.cpu) : can(regex("^([1-9][0-9]*m?|[0-9]+\\.[0-9]{1,3})$", amount))])
    error_message = "The cores are ${jsonencode(var.cpu)}; each must be a number of cores, e.g. 4, 1.5 or 500m."
  }

  validation {
    condition = try(
      tonumber(trimsuffix(var.cpu.request, "m")) * (endswith(var.cpu.request, "m") ? 1 : 1000)
      <= tonumber(trimsuffix(var.cpu.limit, "m")) * (endswith(var.cpu.limit, "m") ? 1 : 1000),
      true, # no number: refused above
    )
    error_message = "The cores are ${jsonencode(var.cpu)}; the request must not be more than the limit. Set both: { request = \"2\", limit = \"8\" }"
  }
}

variable "door_image" {
  description = "The image with Caddy at /usr/bin/caddy, and sh, by digest."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[^\\s@]+@sha256:[0-9a-f]{64}$", var.door_image))
    error_message = "The door's image is \"${var.door_image}\"; it must name a digest (…@sha256: and 64 hexadecimal digits). Run: corral lock"
  }
}

variable "drain_seconds" {
  description = "Seconds that the pod may take to finish running answers before llama-swap gets SIGTERM, which gives them up to 30 s more."
  type        = number
  default     = 60
  nullable    = false

  validation {
    condition     = var.drain_seconds >= 5 && var.drain_seconds <= 86400 && floor(var.drain_seconds) == var.drain_seconds
    error_message = "The drain takes ${var.drain_seconds} s; it must be a whole number of seconds, from 5 to a day, 86400."
  }
}

variable "engine_image" {
  description = "The image that runs, with llama-server, sh and curl, by digest; llama-swap is copied into it from `image`. Null: `image` has both."
  type        = string
  default     = null

  validation {
    condition = var.engine_image == null ? true : can(regex("^[^\\s@]+@sha256:[0-9a-f]{64}$", var.engine_image))
    error_message = join(" ", [
      "The engine's image is ${jsonencode(var.engine_image)}; it must name a digest (…@sha256: and 64 hexadecimal digits),",
      "because a tag can be moved. Run: corral lock",
    ])
  }
}

variable "exporter_namespace" {
  description = "The namespace of the card's exporter, whose pods may connect, too. Null: there is none."
  type        = string
  default     = null
}

variable "expose" {
  description = "A name outside of the cluster, by an Ingress or a Gateway, and the namespace of the pods that forward for it. Null: none."
  type = object({
    hostname       = string
    from_namespace = string
    ingress_class  = optional(string)
    tls_secret     = optional(string)
    annotations    = optional(map(string))
    gateway        = optional(object({ name = string, namespace = string }))
    tls            = optional(bool, true)
  })
  default = null

  validation {
    condition     = var.expose == null ? true : (var.expose.ingress_class == null) != (var.expose.gateway == null)
    error_message = "What is exposed must have exactly one of ingress_class and gateway."
  }

  validation {
    condition     = var.expose == null ? true : var.expose.gateway == null || (var.expose.tls_secret == null && var.expose.annotations == null)
    error_message = "tls_secret and annotations are the Ingress's; a Gateway has its own certificate."
  }

  validation {
    condition     = var.expose == null ? true : can(regex("^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", var.expose.hostname))
    error_message = "The name is \"${try(var.expose.hostname, "")}\"; it must be one name in lower case, without port and *."
  }
}

variable "gateway" {
  description = "Whether the pod of the module gateway, in the same namespace, may connect to the door."
  type        = bool
  default     = false
  nullable    = false
}

variable "guard" {
  description = "The configuration of the guard: output `guard` of the module door, rendered with this module's `ports` and `keys`."
  type        = string
  nullable    = false
}

variable "guard_files" {
  description = "The folder with the guard's Python files, absolute, or relative to Terraform's working directory. Null: the one of this clone."
  type        = string
  default     = null

  validation {
    condition     = var.guard_files == null ? true : fileexists("${var.guard_files}/__main__.py")
    error_message = "The guard's folder is ${jsonencode(var.guard_files)}; it must hold __main__.py, as tools/corral/door does."
  }
}

variable "guard_image" {
  description = "The image with Python 3.11 or newer that the guard runs on, by digest."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[^\\s@]+@sha256:[0-9a-f]{64}$", var.guard_image))
    error_message = "The guard's image is \"${var.guard_image}\"; it must name a digest (…@sha256: and 64 hexadecimal digits). Run: corral lock"
  }
}

variable "has_adapters" {
  description = "Whether requests may name adapters, so that the guard reads which version of each was chosen."
  type        = bool
  default     = false
  nullable    = false
}

variable "holders" {
  description = "The text of the holders.sh that preflight.sh reads when it refuses a load."
  type        = string
  nullable    = false
}

variable "image" {
  description = "The image with llama-swap and sh, by digest; without `engine_image` it must also have llama-server and curl."
  type        = string
  nullable    = false

  validation {
    condition = can(regex("^[^\\s@]+@sha256:[0-9a-f]{64}$", var.image))
    error_message = join(" ", [
      "The server's image is \"${var.image}\"; it must name a digest (…@sha256: and 64 hexadecimal digits),",
      "because a tag can be moved. Run: corral lock",
    ])
  }
}

variable "image_from" {
  description = "The place where `image` is set, e.g. \"variable image\": `corral status` reads it from the Deployment. Null: in lock.json."
  type        = string
  default     = null
}

variable "image_hosts" {
  description = "The hosts whose images a request may name, each with its addresses, e.g. { \"images.home.arpa\" = [\"192.168.1.20/32\"] }."
  type        = map(list(string))
  default     = {}
  nullable    = false

  validation {
    condition = alltrue(flatten([
      for host, cidrs in var.image_hosts : [length(cidrs) > 0, [
        for cidr in cidrs : can(cidrhost(cidr, 0)) && !endswith(cidr, "/0") && !can(regex("^(127|169\\.254)\\.", cidr))
      ]]
    ]))
    error_message = join(" ", [
      "The image hosts are ${jsonencode(var.image_hosts)}; each must have its own addresses, e.g. [\"192.168.1.20/32\"]:",
      "not all addresses, not loopback, and not the link-local ones, where a cloud keeps its secrets.",
    ])
  }
}

variable "models" {
  description = "The models of the lock, by id: the files that must be in the store, and each model's memory on the host."
  type = map(object({
    argv      = list(string)
    files     = list(object({ size = number }))
    intent    = object({ cache_ram_mib = number, group = string })
    predicted = object({ host = optional(map(number)) })
  }))
  nullable = false
}

variable "name" {
  description = "The name of its objects: llama-swap for the first card, whose Service leads to the pods of all; for another one llama-swap-CARD."
  type        = string
  default     = "llama-swap"
  nullable    = false

  validation {
    condition     = can(regex("^llama-swap(-[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?)?$", var.name))
    error_message = "The name is \"${var.name}\"; it must be llama-swap, or that with a dash and at most 32 of a-z, 0-9 and - after it."
  }
}

variable "namespace" {
  description = "The namespace of all objects."
  type        = string
  nullable    = false
}

variable "node" {
  description = "The node with the card that the models were seated on. Null: any node whose GPU is free."
  type        = string
  default     = null
}

variable "preflight" {
  description = "The text of the preflight.sh that the commands in `config` begin with."
  type        = string
  nullable    = false
}

variable "priority_class" {
  description = "The PriorityClass of llama-swap's pod, which decides whom the node's kubelet evicts first. Null: the cluster's default."
  type        = string
  default     = null

  validation {
    condition = var.priority_class == null ? true : can(regex("^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", var.priority_class))
    error_message = join(" ", [
      "The priority class is ${jsonencode(var.priority_class)}; it must be the name of a PriorityClass, of a-z, 0-9, . and -.",
      "To list them: kubectl get priorityclasses",
    ])
  }
}

variable "rollout_minutes" {
  description = "Minutes that a new pod may take to be ready, with the pull of an image of several GB; then the apply fails."
  type        = number
  default     = 15
  nullable    = false

  validation {
    condition     = var.rollout_minutes >= 1 && var.rollout_minutes <= 1440 && floor(var.rollout_minutes) == var.rollout_minutes
    error_message = "The rollout may take ${var.rollout_minutes} minutes; it must be a whole number of minutes, from 1 to a day, 1440."
  }
}

variable "runtime_class" {
  description = "The RuntimeClass that gives a pod its card. Null: the node's default runtime does."
  type        = string
  default     = null
}

variable "together" {
  description = "The sets of models that run at the same time, by group: output `together` of the module seating, of the card. Any other group runs one."
  type        = map(list(list(string)))
  default     = {}
  nullable    = false
}

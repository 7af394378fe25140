variable "api_key_env" {
  description = "The variable of llama-swap's environment that holds the one key that it accepts. Null: it accepts every request."
  type        = string
  default     = null

  validation {
    condition     = var.api_key_env == null ? true : can(regex("^[A-Z_][A-Z0-9_]*$", var.api_key_env))
    error_message = "The variable of the key is ${jsonencode(var.api_key_env)}; it must be the name of a variable, e.g. SWAP_KEY, never a key."
  }
}

variable "concurrency" {
  description = "HTTP requests that one model accepts at a time, including waiting ones; a further one gets 429. Never below the model's own `parallel`."
  type        = number
  default     = 10
  nullable    = false

  validation {
    condition = var.concurrency >= 1 && var.concurrency <= 256 && floor(var.concurrency) == var.concurrency
    error_message = join(" ", [
      "The concurrency is ${var.concurrency}; it must be a whole number of requests, from 1 to 256:",
      "the door holds 400 connections, for all models and clients together.",
    ])
  }
}

variable "engine" {
  description = "The program that replaces `llama-server` in the lock's argv: a name on PATH or an absolute path."
  type        = string
  default     = "llama-server"
  nullable    = false

  validation {
    condition     = trimspace(var.engine) != "" && !strcontains(var.engine, "$${")
    error_message = "The engine is \"${var.engine}\"; it must name a program, and must not hold \"$${\", which llama-swap would expand."
  }
}

variable "health_check_timeout" {
  description = "Seconds that a model may take to load before llama-swap stops it; a cold read of 5 GB over NFS takes minutes."
  type        = number
  default     = 300
  nullable    = false

  validation {
    condition = var.health_check_timeout >= 15 && var.health_check_timeout <= 86400 && floor(var.health_check_timeout) == var.health_check_timeout
    error_message = join(" ", [
      "The health check timeout is ${var.health_check_timeout} s;",
      "it must be a whole number of seconds, from 15 to a day, 86400: llama-swap silently raises anything below.",
    ])
  }
}

variable "models" {
  description = "The models of the lock, by id. argv begins with llama-server or vllm; its placeholders are STORE and PORT."
  type = map(object({
    argv     = list(string)
    files    = list(object({ sha256 = string }))
    revision = optional(string)
    intent = object({
      adapters = optional(list(object({ name = optional(string), scale = number, version = optional(string, "v1") })), [])

      aliases    = list(string)
      context    = number
      group      = string
      modalities = list(string)
      parallel   = number
      reasoning  = string
      task       = optional(string, "chat") # a lock of an older corral has none
      ttl        = number
    })
  }))
  nullable = false
}

variable "on_cpu" {
  description = "The models whose engines get no card of the machine, by id, each with the reason. Those that are none of `models` are ignored."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for reason in values(var.on_cpu) : trimspace(reason) != "" && !strcontains(reason, "$${")])
    error_message = "Each reason of on_cpu must be a text without \"$${\", which llama-swap would expand."
  }
}

variable "peers" {
  description = "Programs beside llama-swap that serve models of their own, by name: their address, and the ids and aliases of the models."
  type        = map(object({ proxy = string, models = list(string) }))
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for one in values(var.peers) : can(regex("^http://[a-z0-9.-]+:[0-9]+$", one.proxy)) && length(one.models) > 0])
    error_message = "The peers are ${jsonencode(var.peers)}; each needs an address like http://name:8000, and a model."
  }
}

variable "preflight" {
  description = "The absolute path of this module's preflight.sh on the engine's machine: it refuses a load without room. Null: no preflight."
  type        = string
  default     = null

  validation {
    condition = var.preflight == null ? true : startswith(var.preflight, "/") && !strcontains(var.preflight, "$${")
    error_message = join(" ", [
      "The preflight is ${jsonencode(var.preflight)};",
      "it must be an absolute path, and must not hold \"$${\", which llama-swap would expand.",
    ])
  }
}

variable "seats" {
  description = "What each model needs of its card, in whole MiB, by model id: output `seats` of the module seating. Read only with a preflight."
  type        = map(number)
  default     = {}
  nullable    = false
}

variable "start_port" {
  description = "The first loopback port that llama-swap gives to a model; each further model takes the next one, in the order of the ids."
  type        = number
  default     = 5800
  nullable    = false

  validation {
    condition     = var.start_port >= 1024 && var.start_port <= 65000 && floor(var.start_port) == var.start_port
    error_message = "The start port is ${var.start_port}; it must be a whole number from 1024 to 65000."
  }
}

variable "store" {
  description = "The path of the model store on the engine's machine, absolute, e.g. \"/models\"."
  type        = string
  nullable    = false

  validation {
    condition     = startswith(var.store, "/") && !strcontains(var.store, "$${")
    error_message = "The store is \"${var.store}\"; it must be an absolute path, and must not hold \"$${\", which llama-swap would expand."
  }
}

variable "together" {
  description = "The sets of models that run at the same time, by group: of one card, output `together` of the module seating. Empty: one model of each group."
  type        = map(list(list(string)))
  default     = {}
  nullable    = false
}

variable "vllm" {
  description = "The program that replaces `vllm` in the lock's argv: a name on PATH or an absolute path. Null: there is none, and no model may need it."
  type        = string
  default     = null

  validation {
    condition     = var.vllm == null ? true : trimspace(var.vllm) != "" && !strcontains(var.vllm, "$${")
    error_message = "The program of vLLM is ${jsonencode(var.vllm)}; it must name a program, and must not hold \"$${\", which llama-swap would expand."
  }
}

variable "answer_seconds" {
  description = "Seconds that an answer may take when its model is loaded. By default llama-server's own limit for reading and writing (--timeout)."
  type        = number
  default     = 3600
  nullable    = false

  validation {
    condition     = var.answer_seconds >= 1 && var.answer_seconds <= 86400 && floor(var.answer_seconds) == var.answer_seconds
    error_message = "An answer may take ${var.answer_seconds} s; it must be a whole number of seconds, from 1 to a day, 86400."
  }
}

variable "api_base" {
  description = "The endpoint of llama-swap or its door, with /v1, e.g. \"http://llama-swap.llama-cpp.svc.cluster.local:8080/v1\"."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^https?://[^\\s@/?#]+(/[^\\s?#]*)?/v1$", var.api_base))
    error_message = "The endpoint is ${jsonencode(var.api_base)}; it must be an address with http:// or https://, without a key in it, that ends in /v1."
  }
}

variable "api_key_env" {
  description = "The variable of LiteLLM's environment that holds the key with which it asks the door. Null: the endpoint takes requests without a key."
  type        = string
  default     = null

  validation {
    condition     = var.api_key_env == null ? true : can(regex("^[A-Z_][A-Z0-9_]*$", var.api_key_env))
    error_message = "The variable of the key is ${jsonencode(var.api_key_env)}; it must be the name of a variable, e.g. CORRAL_DOOR_KEY, never a key."
  }
}

variable "database_env" {
  description = "The variable of LiteLLM's environment that holds the address of its PostgreSQL, for virtual keys. Null: there is the master key alone."
  type        = string
  default     = null

  validation {
    condition     = var.database_env == null ? true : can(regex("^[A-Z_][A-Z0-9_]*$", var.database_env))
    error_message = "The variable of the database is ${jsonencode(var.database_env)}; it must be the name of a variable, e.g. DATABASE_URL, never an address."
  }
}

variable "load_seconds" {
  description = "Seconds that a model may take to load: input `health_check_timeout` of the module llama-swap-config."
  type        = number
  default     = 300
  nullable    = false

  validation {
    condition     = var.load_seconds >= 15 && var.load_seconds <= 86400 && floor(var.load_seconds) == var.load_seconds
    error_message = "A load may take ${var.load_seconds} s; it must be a whole number of seconds, from 15 to a day, 86400."
  }
}

variable "models" {
  description = "The models of the lock, by id."
  type = map(object({
    intent = object({
      adapters   = optional(list(object({ name = optional(string) })), [])
      aliases    = list(string)
      context    = number
      fallback   = optional(string)
      modalities = list(string)
      task       = optional(string, "chat") # a lock of an older corral has none
    })
  }))
  nullable = false
}

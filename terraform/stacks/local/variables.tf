variable "catalog" {
  description = "The folder that holds models/*.yaml and lock.json, absolute or relative to this stack, e.g. \"../../catalog-demo\"."
  type        = string
  nullable    = false
}

variable "door" {
  description = "The front door: its port and names, its folder, llama-swap's port, and the file of adapters' versions. Null: llama-swap takes every request."
  type = object({
    folder    = string
    hosts     = list(string)
    keys      = optional(string)
    port      = number
    swap_port = number
    tls       = optional(object({ certificate = optional(string), key = optional(string) }))
    versions  = optional(string)
  })
  default = null
}

variable "engine" {
  description = "The llama-server to run, a name on PATH or an absolute path, e.g. \"/usr/local/bin/llama-server\"."
  type        = string
  default     = "llama-server"
  nullable    = false
}

variable "on_cpu" {
  description = "The models whose engines get no card of this machine, by id, each with the reason."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "preflight" {
  description = "The script that runs before every engine and refuses a load without room, absolute or relative to this stack. Null: no preflight."
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

variable "vllm" {
  description = "The program vllm, a name on PATH or an absolute path. Null: there is none, and a model with engine: vllm is refused."
  type        = string
  default     = null
}

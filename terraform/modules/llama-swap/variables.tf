variable "allowed_namespaces" {
  description = "The namespaces whose pods may speak to llama-swap. No other may, this one's own included."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for name in var.allowed_namespaces : can(regex("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", name))])
    error_message = "The allowed namespaces are ${join(", ", var.allowed_namespaces)}; each must be the name of a namespace, of a-z, 0-9 and -."
  }
}

variable "claim" {
  description = "The claim of the model store, e.g. output `claim` of the module model-store. It is mounted read-only at /models."
  type        = string
  nullable    = false
}

variable "config" {
  description = "The configuration of llama-swap: output `yaml` of the module llama-swap-config, made for this one's `store` and `folder`."
  type        = string
  nullable    = false
}

variable "cpu" {
  description = "Cores: what the pod is sure of, and the most that it may take. One is busy while a model answers, all while an image is read."
  type        = object({ request = optional(string, "500m"), limit = optional(string, "4") })
  default     = {}
  nullable    = false
}

variable "drain_seconds" {
  description = "How long the pod may go on answering what it has begun before llama-swap is told to stop, which then takes up to 30 s more."
  type        = number
  default     = 60
  nullable    = false

  validation {
    condition     = var.drain_seconds >= 5 && floor(var.drain_seconds) == var.drain_seconds
    error_message = "The drain takes ${var.drain_seconds} s; it must be a whole number of seconds, 5 or more."
  }
}

variable "image" {
  description = "The image with llama-swap, llama-server, sh and curl, by digest, e.g. \"ghcr.io/mostlygeek/llama-swap:v252-cuda-b10775-non-root@sha256:…\"."
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
  description = "Where `image` was chosen, e.g. \"variable image\": `corral status` reads it from the Deployment. Null: in lock.json."
  type        = string
  default     = null
}

variable "models" {
  description = "The models of the lock, by id: which files must be in the store, and what each takes of the machine's memory."
  type = map(object({
    argv      = list(string)
    files     = list(object({ size = number }))
    intent    = object({ cache_ram_mib = number, group = string })
    predicted = object({ host = optional(map(number)) })
  }))
  nullable = false
}

variable "namespace" {
  description = "The namespace of everything here."
  type        = string
  nullable    = false
}

variable "node" {
  description = "The node with the card that the models were seated on. Null: any node with a free nvidia.com/gpu."
  type        = string
  default     = null
}

variable "preflight" {
  description = "The text of the preflight.sh that the commands in `config` begin with."
  type        = string
  nullable    = false
}

variable "runtime_class" {
  description = "The RuntimeClass that gives a pod its card. Null: the node's default runtime does."
  type        = string
  default     = null
}

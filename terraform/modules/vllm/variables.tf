variable "after" {
  description = "What the server waits for, e.g. output `job` of the module model-fetch."
  type        = string
  default     = null
}

variable "argv" {
  description = "The command line of the lock, from `vllm` on; its placeholders are STORE and PORT."
  type        = list(string)
  nullable    = false
}

variable "claim" {
  description = "The claim of the model store, e.g. output `claim` of the module model-store. It is mounted read-only at /models."
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
  description = "Cores of vLLM: request and limit."
  type        = object({ request = optional(string, "1"), limit = optional(string, "4") })
  default     = {}
  nullable    = false
}

variable "files" {
  description = "The files of the lock, for the memory of the host that their bytes pass through."
  type        = list(object({ size = number }))
  nullable    = false
}

variable "from" {
  description = "The labels of the pods that may send requests, which are llama-swap's of the same card."
  type        = map(string)
  default     = { "app.kubernetes.io/name" = "llama-swap" }
  nullable    = false

  validation {
    condition     = length(var.from) > 0
    error_message = "from must name a label: without one every pod of the namespace could send requests."
  }
}

variable "image" {
  description = "The image with the program vllm, by digest, e.g. vllm/vllm-openai:v0.32.0@sha256:…."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[^\\s@]+@sha256:[0-9a-f]{64}$", var.image))
    error_message = "The image of vLLM is \"${var.image}\"; it must name a digest (…@sha256: and 64 hexadecimal digits). Run: corral lock"
  }
}

variable "load_seconds" {
  description = "Seconds that the model may take to load before its pod is started again; compiling and capturing graphs included."
  type        = number
  default     = 900
  nullable    = false

  validation {
    condition     = var.load_seconds >= 60 && var.load_seconds <= 86400 && floor(var.load_seconds) == var.load_seconds
    error_message = "A load may take ${var.load_seconds} s; it must be a whole number of seconds, from 60 to a day, 86400."
  }
}

variable "model" {
  description = "The id of the model in the catalog."
  type        = string
  nullable    = false
}

variable "name" {
  description = "The name of its objects, and of the Service in its address, e.g. vllm-qwen3-8b."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,45}[a-z0-9])?$", var.name)) # a Service's name has no dot, and that of a pod 63 characters
    error_message = "The name is \"${var.name}\"; it is made of the model's id, and has at most 47 of a-z, 0-9 and dash. Rename models/ID.yaml"
  }
}

variable "namespace" {
  description = "The namespace of llama-swap and of the model store."
  type        = string
  nullable    = false
}

variable "node" {
  description = "The node of the model's card. Null: any node."
  type        = string
  default     = null
}

variable "port" {
  description = "The port of the server and of its Service."
  type        = number
  default     = 8000
  nullable    = false
}

variable "priority_class" {
  description = "The priority class of the pod. Null: the cluster's default."
  type        = string
  default     = null
}

variable "rollout_minutes" {
  description = "Minutes until a rollout has failed: the pull of an image of several GB and a load."
  type        = number
  default     = 30
  nullable    = false
}

variable "runtime_class" {
  description = "The runtime class with access to the card, e.g. nvidia. Null: the cluster's default."
  type        = string
  default     = null
}

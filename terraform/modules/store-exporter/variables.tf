variable "claim" {
  description = "The claim of the model store, e.g. output `claim` of the module model-store."
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
    })), [{ key = "nvidia.com/gpu", operator = "Exists" }])
  })
  default  = {}
  nullable = false
}

variable "image" {
  description = "A Python 3.11 or later, by digest, e.g. \"python:3.13-slim@sha256:…\"."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[^\\s@]+@sha256:[0-9a-f]{64}$", var.image))
    error_message = "The exporter's image is \"${var.image}\"; it must name a digest (…@sha256: and 64 hexadecimal digits). Run: corral lock"
  }
}

variable "namespace" {
  description = "The namespace of the claim, which is also the label `store` of every metric."
  type        = string
  nullable    = false
}

variable "node" {
  description = "The node that serves the models, whose page cache is measured. Null: any node."
  type        = string
  default     = null
}

variable "program" {
  description = "The ConfigMaps with the agent and its part of the lock, and the owner of the files: output `program` of the module model-fetch."
  type        = object({ agent = string, lock = string, user = number })
  nullable    = false
}

variable "scraped_from" {
  description = "The namespaces whose pods may read the metrics, e.g. [\"monitoring\"]. No other may."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "seal" {
  description = "The seal of the lock, which is a metric."
  type        = string
  nullable    = false
}

variable "alertmanager" {
  description = "The Alertmanager whose alerts are recorded, e.g. { service = \"alertmanager-operated\", namespace = \"monitoring\" }. Null: none are."
  type = object({
    service   = string
    namespace = string
    port      = optional(number, 9093)
  })
  default = null
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

variable "door" {
  description = "The front door of each pod of llama-swap: its port, and a Host that it serves, e.g. { port = 8080, host = \"llama-swap.llama-cpp.svc\" }."
  type        = object({ port = number, host = string })
  nullable    = false
}

variable "driver_pid_namespace" {
  description = "The number of the pid namespace whose pids the driver reports, where that is not the kernel's first. Null: the first."
  type        = number
  default     = null
}

variable "engines" {
  description = "The pods of llama-swap: their namespace, and labels as app=name."
  type        = object({ namespace = string, selector = string })
  nullable    = false
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
  description = "The namespace that is made for it. Pod Security is off in it, because the pod reads the node's processes."
  type        = string
  default     = "corral-exporter"
  nullable    = false
}

variable "nodes" {
  description = "The node of each card, by the card's name; one pod runs on each."
  type        = map(string)
  nullable    = false

  validation {
    condition     = length(var.nodes) > 0
    error_message = "No card names its node. Write it into cards/<card>.yaml, e.g. node: k8s-node1, then run: corral lock"
  }
}

variable "program" {
  description = "The folder with the exporter's Python files, absolute, or relative to Terraform's working directory. Null: the one of this clone."
  type        = string
  default     = null

  validation {
    condition     = var.program == null ? true : fileexists("${var.program}/__main__.py")
    error_message = "The exporter's folder is ${jsonencode(var.program)}; it must hold __main__.py, as tools/corral/exporter does."
  }
}

variable "promises" {
  description = "What is promised on each card, by name: output `promises` of the module seating."
  type        = any
  nullable    = false
}

variable "records" {
  description = "The folder on the node, of this exporter alone, in which it records what happens: 64 MiB at most, for more than seven days."
  type        = string
  default     = "/var/lib/corral/records"
  nullable    = false

  validation {
    condition     = can(regex("^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*/corral[A-Za-z0-9_-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$", var.records))
    error_message = "The folder of the records is \"${var.records}\"; it must be in a folder of corral's, e.g. /var/lib/corral/records."
  }
}

variable "runtime_class" {
  description = "The RuntimeClass that brings nvidia-smi into the container. Null: the node's default does."
  type        = string
  default     = null
}

variable "scraped_from" {
  description = "The namespaces whose pods may read the metrics, e.g. [\"monitoring\"]. No other may."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "seal" {
  description = "The seal of the lock."
  type        = string
  nullable    = false
}

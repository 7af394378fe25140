variable "agent" {
  description = "The folder with the agent's Python files, absolute, or relative to Terraform's working directory. Null: the one of this clone."
  type        = string
  default     = null

  validation {
    condition     = var.agent == null ? true : fileexists("${var.agent}/__main__.py")
    error_message = "The agent's folder is ${jsonencode(var.agent)}; it must hold __main__.py, as tools/corral/agent does."
  }
}

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

variable "hf_token_secret" {
  description = "The Secret in the namespace whose key `token` gives the Job access to gated repos. Null: no token."
  type        = string
  default     = null

  validation {
    condition = var.hf_token_secret == null ? true : can(regex("^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", var.hf_token_secret))
    error_message = join(" ", [
      "The token's Secret has no name that a Secret can have (it is not shown: it may be the token itself);",
      "it must be of a-z, 0-9, . and -, e.g. hf-token.",
    ])
  }
}

variable "hub" {
  description = "The hub of the files, e.g. \"https://hub.home.arpa:8443\". Plain http is allowed for it. If private: `hub_cidrs` too. Null: huggingface.co."
  type        = string
  default     = null

  validation {
    condition     = var.hub == null ? true : can(regex("^https?://([A-Za-z0-9.-]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]{1,5})?(/[^\\s?#]*)?$", var.hub))
    error_message = "The hub is ${jsonencode(var.hub)}; it must be the address of a hub, e.g. https://huggingface.co."
  }
}

variable "hub_cidrs" {
  description = "The networks of a hub in a private network, e.g. [\"192.168.1.20/32\"]: the download may reach its port there, and no other private address."
  type        = list(string)
  default     = []
  nullable    = false

  # Two networks overlap when their first bits are the same, as many as the shorter prefix has.
  validation {
    condition = alltrue([
      for block in var.hub_cidrs : can(cidrhost(block, 0)) && alltrue([
        for local in ["169.254.0.0/16", "fe80::/10"] : !try(
          cidrhost("${split("/", block)[0]}/${min(split("/", block)[1], split("/", local)[1])}", 0)
          == cidrhost("${split("/", local)[0]}/${min(split("/", block)[1], split("/", local)[1])}", 0),
          false,
        )
      ])
    ])
    error_message = join(" ", [
      "The hub's networks are ${jsonencode(var.hub_cidrs)}; each must be a network such as 192.168.1.20/32,",
      "without link-local addresses (169.254.0.0/16, fe80::/10): a machine's metadata is there.",
    ])
  }
}

variable "image" {
  description = "The image that runs the agent: a Python 3.11 or later with sh, by digest, e.g. \"python:3.13-slim@sha256:…\"."
  type        = string
  nullable    = false

  validation {
    condition = can(regex("^[^\\s@]+@sha256:[0-9a-f]{64}$", var.image))
    error_message = join(" ", [
      "The download's image is \"${var.image}\"; it must name a digest (…@sha256: and 64 hexadecimal digits),",
      "because a tag can be moved. Run: corral lock",
    ])
  }
}

variable "models" {
  description = "The models of the lock, by id. Only the part that the agent reads determines whether there is a new Job."
  type = map(object({
    repo     = optional(string)
    revision = optional(string)
    files = list(object({
      path = string, role = string, size = number, sha256 = string, repo = optional(string), revision = optional(string)
    }))
  }))
  nullable = false
}

variable "namespace" {
  description = "The namespace of the Job."
  type        = string
  nullable    = false
}

variable "node" {
  description = "The node that serves the models: the Job runs there, because it also reads them into that machine's memory. Null: any node."
  type        = string
  default     = null
}

variable "timeout_minutes" {
  description = "Minutes that the Job may take, including retries and the wait for a node; Terraform waits as long."
  type        = number
  default     = 180
  nullable    = false

  validation {
    condition     = var.timeout_minutes >= 1 && var.timeout_minutes <= 44640 && floor(var.timeout_minutes) == var.timeout_minutes
    error_message = "The download's timeout is ${var.timeout_minutes}; it must be a whole number of minutes, from 1 to a month, 44640."
  }
}

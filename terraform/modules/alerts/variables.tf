variable "cards" {
  description = "The names of the cards that an exporter reports, e.g. [\"t4\"]: each has an alert for its absence."
  type        = list(string)
  nullable    = false

  validation {
    condition     = length(var.cards) > 0 && alltrue([for card in var.cards : can(regex("^[a-z0-9][a-z0-9.-]*$", card))])
    error_message = "The cards are [${join(", ", var.cards)}]; at least one is required, of a-z, 0-9, . and - each."
  }
}

variable "labels" {
  description = "Labels by which the Prometheus operator finds the objects, e.g. { release = \"kube-prometheus-stack\" }."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "namespace" {
  description = "The namespace of the exporter's Service, and of the objects."
  type        = string
  default     = "corral-exporter"
  nullable    = false
}

variable "runbooks" {
  description = "Where the runbooks are: each alert's link is this, a / and <name>.md."
  type        = string
  default     = "docs/runbooks"
  nullable    = false

  validation {
    condition     = !endswith(var.runbooks, "/") && !strcontains(var.runbooks, "{{")
    error_message = "The place of the runbooks is \"${var.runbooks}\"; it must not end with / and must have no {{."
  }
}

variable "seal" {
  description = "The seal of the lock that the rules are delivered with: an exporter that has another one for long is an alert."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.seal))
    error_message = "The seal is \"${var.seal}\"; it must have 64 hexadecimal digits: the value of `seal` in lock.json."
  }
}

variable "stores" {
  description = "The model stores that an exporter reports, by the label `store`, which is its namespace: each has an alert for its absence."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for store in var.stores : can(regex("^[a-z0-9][a-z0-9.-]*$", store))])
    error_message = "The stores are [${join(", ", var.stores)}]; each must be a name of a-z, 0-9, . and -."
  }
}

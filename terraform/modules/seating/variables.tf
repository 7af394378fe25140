variable "cards" {
  description = "The cards of the lock, by name: the memory, the reserve and the budgets of the tenants, in MiB; for `promises`, what else an exporter knows."
  type = map(object({
    vram_mib    = number
    reserve_mib = number
    tenants = map(object({
      budget_mib = number
      namespace  = optional(string)
      selector   = optional(string)
      unit       = optional(string)
      expects    = optional(object({ env = map(string) }))
    }))
    yield = optional(object({ floor_mib = number, idle_seconds = number }))
  }))
  nullable = false
}

variable "models" {
  description = "The models of the lock, by id: the card of each, its predicted, declared and measured memory, and its latency budgets for `promises`."
  type = map(object({
    intent = object({
      card  = string
      group = string
      vram  = optional(object({ declared_mib = number }))
      latency = optional(list(object({
        consumer      = string
        prompt_tokens = number
        answer_tokens = number
        p95_seconds   = number
        cold          = string
      })), [])
    })
    predicted = object({ gpu_bytes = optional(number) })
    measured  = optional(object({ gpu_bytes = number }))
  }))
  nullable = false

  validation {
    condition = alltrue([for model in values(var.models) : can(var.cards[model.intent.card])])
    error_message = join(" ", [
      "Models on a card that is not there:",
      "${join(", ", [for id, model in var.models : "${id} (${model.intent.card})" if !can(var.cards[model.intent.card])])}. Run: corral lock",
    ])
  }
}

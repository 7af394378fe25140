# The charts of many catalogs in one run: terraform plan -var-file=catalogs.tfvars.json

variable "catalogs" {
  description = "By name, what the module seating takes."
  type = map(object({
    cards = map(object({ vram_mib = number, reserve_mib = number, tenants = map(object({ budget_mib = number })) }))
    models = map(object({
      intent    = object({ card = string, group = string, vram = optional(object({ declared_mib = number })) })
      predicted = object({ gpu_bytes = optional(number) })
      measured  = optional(object({ gpu_bytes = number }))
    }))
  }))
}

module "seating" {
  source   = "../.."
  for_each = var.catalogs

  cards  = each.value.cards
  models = each.value.models
}

output "charts" {
  description = "The chart of each catalog, by name."
  value       = { for name, seating in module.seating : name => seating.chart }
}

# What stands in front of each llama-server.  Its words are quoted with the rest of the command.

locals {
  _models_without_seat = var.preflight == null ? [] : [
    for id in keys(local.entries) : id if !try(var.seats[id] >= 0 && floor(var.seats[id]) == var.seats[id], false)
  ]

  _preflight = { for id in keys(local.entries) : id => var.preflight == null ? [] : [
    var.preflight, "--model", id, "--need-mib", try(tostring(var.seats[id]), ""), "--",
  ] }
}

resource "terraform_data" "every_model_has_a_seat" {
  lifecycle {
    precondition {
      condition     = length(local._models_without_seat) == 0
      error_message = "Models without a seat: ${join(", ", local._models_without_seat)}. The preflight compares a model's measured need, in whole MiB, with what is free on the card. Have them measured, run: corral lock"
    }
  }
}

locals {
  _alias_owners = { for claim in flatten([
    for id, model in local.models : [for alias in model.aliases : { alias = alias, id = id }]
  ]) : claim.alias => claim.id... }

  _aliases_claimed_twice = [for alias, ids in local._alias_owners : "${alias} (${join(", ", ids)})" if length(ids) > 1]
  _aliases_that_are_ids  = [for alias, ids in local._alias_owners : "${alias} (${join(", ", ids)})" if can(local._digests[alias])]
}

resource "terraform_data" "aliases_are_unique" {
  lifecycle {
    precondition {
      condition     = length(local._aliases_claimed_twice) == 0
      error_message = "Aliases claimed more than once: ${join(", ", local._aliases_claimed_twice)}. An alias must belong to one model. Remove it from the others, then run: corral lock"
    }
  }
}

resource "terraform_data" "aliases_are_not_ids" {
  lifecycle {
    precondition {
      condition     = length(local._aliases_that_are_ids) == 0
      error_message = "Aliases that are also a model's id: ${join(", ", local._aliases_that_are_ids)}. An alias must differ from every id. Rename it, then run: corral lock"
    }
  }
}

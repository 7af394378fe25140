# A digest that matches proves more than freshness: `corral lock` validates an intent before it locks it.
# Only such models are rendered, so that a bad one is refused by name here and never ends in an error of an expression.

locals {
  lock_version = 1

  _lock_version_found = try(tostring(var.lock.version), "none")
  _lock_entries       = try({ for id, entry in var.lock.models : id => entry if local._lock_is_read }, {})
  _lock_is_read       = var.lock != null && local._lock_version_found == tostring(local.lock_version)

  _digests = { for id, intent in var.models : id => sha256(jsonencode(intent)) }

  _models_not_locked   = [for id in keys(var.models) : id if local._lock_is_read && !can(local._lock_entries[id])]
  _models_stale        = [for id, digest in local._digests : id if can(local._lock_entries[id]) && try(local._lock_entries[id].intent_sha256, "") != digest]
  _entries_without_use = [for id in keys(local._lock_entries) : id if !can(local._digests[id])]

  entries = { for id, entry in local._lock_entries : id => entry if try(entry.intent_sha256 == local._digests[id], false) }
}

resource "terraform_data" "lock_exists" {
  lifecycle {
    precondition {
      condition     = var.lock != null
      error_message = "The catalog has no lock.json; nothing is served that was not resolved and pinned. Run: corral lock"
    }
  }
}

resource "terraform_data" "lock_version_is_known" {
  lifecycle {
    precondition {
      condition     = var.lock == null || local._lock_is_read
      error_message = "lock.json has version ${local._lock_version_found}; this module reads version ${local.lock_version}. Run: corral lock"
    }
  }
}

resource "terraform_data" "lock_covers_the_catalog" {
  lifecycle {
    precondition {
      condition     = length(local._models_not_locked) == 0
      error_message = "Not in lock.json: ${join(", ", local._models_not_locked)}. Every model of the catalog must be locked. Run: corral lock"
    }
  }
}

resource "terraform_data" "lock_is_fresh" {
  lifecycle {
    precondition {
      condition     = length(local._models_stale) == 0
      error_message = "Stale in lock.json: ${join(", ", local._models_stale)}. The intent changed after it was locked. Run: corral lock"
    }
  }
}

resource "terraform_data" "catalog_covers_the_lock" {
  lifecycle {
    precondition {
      condition     = length(local._entries_without_use) == 0
      error_message = "In lock.json but no longer in the catalog: ${join(", ", local._entries_without_use)}. The lock must name the catalog's models and no other. Run: corral lock"
    }
  }
}

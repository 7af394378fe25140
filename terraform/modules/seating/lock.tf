# Only models whose lock entry is fresh are seated.  The words are those of llama-swap-config: corral tells equal
# sentences once, so that a stale lock is one message.

locals {
  lock_version = 1

  _lock_version_found = try(tostring(var.lock.version), "none")
  _lock_is_read       = var.lock != null && local._lock_version_found == tostring(local.lock_version)
  _lock_entries       = try({ for id, entry in var.lock.models : id => entry if local._lock_is_read }, {})

  _digests           = { for id, intent in var.models : id => sha256(jsonencode(intent)) }
  _models_not_locked = [for id in keys(var.models) : id if local._lock_is_read && !can(local._lock_entries[id])]
  _models_stale      = [for id, digest in local._digests : id if can(local._lock_entries[id]) && try(local._lock_entries[id].intent_sha256, "") != digest]

  _entries = { for id, entry in local._lock_entries : id => entry if try(entry.intent_sha256 == local._digests[id], false) }

  _lock_is_fresh = (
    var.lock == null ? "The catalog has no lock.json; nothing is served that was not resolved and pinned. Run: corral lock" :
    !local._lock_is_read ? "lock.json has version ${local._lock_version_found}; this module reads version ${local.lock_version}. Run: corral lock" :
    length(local._models_not_locked) > 0 ? "Not in lock.json: ${join(", ", local._models_not_locked)}. Every model of the catalog must be locked. Run: corral lock" :
    length(local._models_stale) > 0 ? "Stale in lock.json: ${join(", ", local._models_stale)}. The intent changed after it was locked. Run: corral lock" : ""
  )
}

resource "terraform_data" "lock_is_fresh" {
  lifecycle {
    precondition {
      condition     = local._lock_is_fresh == ""
      error_message = local._lock_is_fresh
    }
  }
}

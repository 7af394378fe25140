output "lock" {
  description = "The complete lock, decoded: `cards`, `clients`, `images` and `models` by name, and its `seal`."

  # A plan that evaluates no precondition (terraform plan -destroy) gets no model of a refused lock.
  value = merge(local._empty, jsondecode(local._is_accepted ? local._text : "{}"))

  precondition {
    condition = local.lock_exists
    error_message = (
      !can(fileexists(local._file)) ? "lock.json is not a file; a lock is one. Remove it. Run: corral lock" :
      "The catalog has no lock.json; nothing is served that was not resolved and pinned. Run: corral lock"
    )
  }

  precondition {
    condition = local.lock_version_is_known
    error_message = (
      local._version_found == null ? "lock.json cannot be read: it is not JSON with a version. Run: corral lock --check" :
      "lock.json has version ${local._version_found}, and this corral reads version ${local._version}. Run: corral lock --check"
    )
  }

  precondition {
    condition     = local.lock_is_sealed
    error_message = "lock.json was edited or merged after corral lock had written it: its seal does not match. Run: corral lock"
  }

  precondition {
    condition = local.sources_are_listed
    error_message = join(" ", [
      "The catalog cannot be listed: ${try(local._dangling[0], "a file of models/ or cards/")} is a link that leads nowhere,",
      "and Terraform's fileset fails at one. For its name run: corral validate",
    ])
  }

  precondition {
    condition     = local.lock_is_fresh
    error_message = "lock.json is stale: ${join(", ", local._differences)}. It must be made from the catalog's files as they are. Run: corral lock"
  }
}

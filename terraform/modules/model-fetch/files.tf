# What the Job is asked for.  The lock holds more than the agent reads (arguments, measurements); a change of that is none of its business.

locals {
  agent = coalesce(var.agent, "${path.module}/../../../tools/corral/agent")

  _models = try({ for id, entry in var.lock.models : id => entry }, {})
  lock = {
    version = try(var.lock.version, null)
    models = { for id, entry in local._models : id => {
      repo     = try(entry.repo, null)
      revision = try(entry.revision, null)
      files    = [for file in try(entry.files, []) : { path = file.path, role = file.role, size = file.size, sha256 = file.sha256 }]
    } }
  }

  _models_on_disk = [for id, entry in local.lock.models : id if entry.repo == null]
  _bytes          = sum(concat([0], flatten([for entry in values(local.lock.models) : [for file in entry.files : file.size]])))
}

resource "terraform_data" "models_come_from_a_hub" {
  lifecycle {
    precondition {
      condition     = length(local._models_on_disk) == 0
      error_message = "Models that lie on the operator's disk: ${join(", ", local._models_on_disk)}. The cluster can only fetch from a hub. Give each a repo in place of its path, then run: corral lock"
    }
  }
}

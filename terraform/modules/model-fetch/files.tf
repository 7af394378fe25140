# The Job's input: only the part of the lock that the agent reads, so that no other change makes a new Job.

locals {
  agent = coalesce(var.agent, "${path.module}/../../../tools/corral/agent")
  lock = { version = 2, models = { for id, model in var.models : id => merge(model, {
    # A file without a repository of its own has no such key, as in the lock.
    files = [for file in model.files : { for key, value in file : key => value if value != null }]
  }) } }

  _models_on_disk = [for id, model in var.models : id if model.repo == null]
  _bytes          = sum(concat([0], flatten([for model in values(var.models) : model.files[*].size])))

  models_come_from_a_hub = length(local._models_on_disk) == 0
}

# Its input replaces the Job, because a resource of another module cannot, and one that is new to a state does not: every state has this.
resource "terraform_data" "files" {
  input = [module.agent.name, module.lock.name]
}

moved {
  from = terraform_data.models_come_from_a_hub
  to   = terraform_data.files
}

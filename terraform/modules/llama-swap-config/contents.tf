# What a model is made of is part of its configuration, so that new weights under the same command line are a change.
# llama-swap shows it at /v1/models.

locals {
  contents = { for id, entry in local.entries : id => {
    revision = try(entry.revision, null)
    sha256   = [for file in try(entry.files, []) : try(file.sha256, null)]
  } }
}

# A lock is read only if corral wrote it, from the present files of the catalog.

locals {
  _version = 2

  _file     = "${var.path}/lock.json"
  _text     = try(file(local._file), "")
  _document = try(jsondecode(local._text), null)

  _version_found = try(tostring(local._document.version), null)
  _is_known      = local._version_found == tostring(local._version)

  # The seal is over the file with an empty seal in it.
  _unsealed_text = replace(local._text, "/(?m)^  \"seal\": \"[0-9a-f]*\"/", "  \"seal\": \"\"")
  _is_sealed     = local._is_known && try(local._document.seal == sha256(local._unsealed_text), false)

  _locked = try({ for path, digest in local._document.sources : path => tostring(digest) if local._is_sealed }, {})

  # fileset fails at a link that leads nowhere, and follows only those that match: an editor's files begin with a dot.
  _listed   = try(fileset(var.path, "{models,cards}/[^.]*.yaml"), null)
  _dangling = [for path in keys(local._locked) : path if !can(fileset(var.path, path))]
  # Here a dangling file is listed, and its digest is "unreadable".
  _texts    = [for path in keys(local._locked) : path if startswith(path, "files/")]
  _optional = [for file in concat(["images.yaml", "clients.yaml", "measured.json"], local._texts) : try(fileset(var.path, file), [file])]
  _found = {
    for path in setunion(local._listed == null ? [] : local._listed, local._optional...) :
    path => try(filesha256("${var.path}/${path}"), "unreadable")
  }
  _differences = [for path in sort(setunion(keys(local._locked), keys(local._found))) : (
    !can(local._locked[path]) ? "${path} was added" : !can(local._found[path]) ? "${path} was removed" : "${path} was changed"
  ) if lookup(local._locked, path, "") != lookup(local._found, path, "")]

  _is_fresh = local._is_sealed && local._listed != null && length(local._differences) == 0
}

# Each rule is evaluated only if the previous one holds, and the outputs depend on the last: a lock is refused once.

resource "terraform_data" "lock_exists" {
  lifecycle {
    precondition {
      condition = try(fileexists(local._file), false) # it fails at a folder
      error_message = (
        !can(fileexists(local._file)) ? "lock.json is not a file; a lock is one. Remove it. Run: corral lock" :
        "The catalog has no lock.json; nothing is served that was not resolved and pinned. Run: corral lock"
      )
    }
  }
}

resource "terraform_data" "lock_version_is_known" {
  lifecycle {
    precondition {
      condition = local._is_known
      error_message = (
        local._version_found == null ? "lock.json cannot be read: it is not JSON with a version. Run: corral lock --check" :
        "lock.json has version ${local._version_found}, and this corral reads version ${local._version}. Run: corral lock --check"
      )
    }
  }

  depends_on = [terraform_data.lock_exists]
}

resource "terraform_data" "lock_is_sealed" {
  lifecycle {
    precondition {
      condition     = local._is_sealed
      error_message = "lock.json was edited or merged after corral lock had written it: its seal does not match. Run: corral lock"
    }
  }

  depends_on = [terraform_data.lock_version_is_known]
}

resource "terraform_data" "sources_are_listed" {
  lifecycle {
    precondition {
      condition = local._listed != null
      error_message = join(" ", [
        "The catalog cannot be listed: ${try(local._dangling[0], "a file of models/ or cards/")} is a link that leads nowhere,",
        "and Terraform's fileset fails at one. For its name run: corral validate",
      ])
    }
  }

  depends_on = [terraform_data.lock_is_sealed]
}

resource "terraform_data" "lock_is_fresh" {
  lifecycle {
    precondition {
      condition     = local._is_fresh
      error_message = "lock.json is stale: ${join(", ", local._differences)}. It must be made from the catalog's files as they are. Run: corral lock"
    }
  }

  depends_on = [terraform_data.sources_are_listed]
}

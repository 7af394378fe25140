locals {
  _model_files   = { for path in fileset(var.catalog, "models/*.yaml") : trimsuffix(basename(path), ".yaml") => "${var.catalog}/${path}" }
  _card_files    = { for path in fileset(var.catalog, "cards/*.yaml") : trimsuffix(basename(path), ".yaml") => "${var.catalog}/${path}" }
  _lock_file     = "${var.catalog}/lock.json"
  _measured_file = "${var.catalog}/measured.json"

  _unreadable = [for id, path in local._model_files : path if !can(yamldecode(file(path)))]

  models = { for id, path in local._model_files : id => yamldecode(file(path)) if can(yamldecode(file(path))) }
  lock   = fileexists(local._lock_file) ? try(jsondecode(file(local._lock_file)), {}) : null

  # For modules that cannot do without one; that there is none is refused below, in words.
  lock_or_none = try(coalesce(local.lock), {})

  # The text of a card: decoding it would hide a key that stands twice.
  cards = { for name, path in local._card_files : name => try(file(path), "") }

  # Null means that there is no file, and so a file that says null must be something else.
  measured = fileexists(local._measured_file) ? try(coalesce(jsondecode(file(local._measured_file))), {}) : null
}

resource "terraform_data" "lock_exists" {
  lifecycle {
    precondition {
      condition     = local.lock != null
      error_message = "The catalog has no lock.json; nothing is served that was not resolved and pinned. Run: corral lock"
    }
  }
}

resource "terraform_data" "models_are_yaml" {
  lifecycle {
    precondition {
      condition     = length(local._unreadable) == 0
      error_message = "Not readable as YAML: ${join(", ", local._unreadable)}. For the line and the reason run: corral validate"
    }
  }
}

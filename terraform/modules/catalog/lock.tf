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

  # The rules, in the order in which they are mended: one that cannot be decided yet holds.
  lock_exists           = try(fileexists(local._file), false) # it fails at a folder
  lock_version_is_known = !local.lock_exists || local._is_known
  lock_is_sealed        = !local._is_known || local._is_sealed
  sources_are_listed    = !local._is_sealed || local._listed != null
  lock_is_fresh         = !local._is_sealed || local._listed == null || length(local._differences) == 0

  _is_accepted = local._is_sealed && local._listed != null && length(local._differences) == 0
  _empty       = { cards = {}, clients = {}, images = {}, models = {}, seal = "" }
}

# What the lock says that a model needs, in bytes.  A number counts only when it adds up and belongs to the argv beside it.

locals {
  _mib = 1048576

  _vram     = { for id, entry in local._entries : id => try(entry.vram, null) }
  _rows     = { for id, vram in local._vram : id => try([vram.gpu.weights, vram.gpu.context, vram.gpu.compute, vram.gpu.projector], []) }
  _rules    = { for id, vram in local._vram : id => try([for rule in vram.rules : rule.bytes], null) }
  _total    = { for id, vram in local._vram : id => try(vram.gpu_total > 0 && floor(vram.gpu_total) == vram.gpu_total, false) ? vram.gpu_total : null }
  _declared = { for id, vram in local._vram : id => try(vram.declared.mib * local._mib, null) }

  # The engine's rows and the rules on top; null when the engine was not able to measure the model.
  _asked = { for id, rows in local._rows : id => try(
    alltrue([for bytes in concat(rows, local._rules[id]) : bytes >= 0 && floor(bytes) == bytes])
    && length(rows) > 0 && local._vram[id].context_trained > 0,
    false,
  ) ? sum(concat(rows, local._rules[id])) : null }

  _unmeasured = [for id, total in local._total : id if total == null || (local._asked[id] == null && local._declared[id] == null)]
  _not_adding_up = [
    for id, total in local._total : "${id} (${total}, but its rows say ${max(coalesce(local._asked[id], 0), coalesce(local._declared[id], 0))})"
    if !contains(local._unmeasured, id) && total != max(coalesce(local._asked[id], 0), coalesce(local._declared[id], 0))
  ]
  _other_argv = [
    for id, entry in local._entries : id
    if !contains(local._unmeasured, id) && try(entry.vram.argv_sha256, "") != sha256(try(jsonencode(entry.argv), ""))
  ]
  _declared_too_low = [
    for id, declared in local._declared :
    "${id} (declared ${ceil(declared / local._mib)} MiB, measured ${ceil(local._asked[id] / local._mib)} MiB)"
    if try(declared < local._asked[id], false)
  ]

  _unmeasured_told = [for id in local._unmeasured : "${id}${try(" (${local._vram[id].unmeasured})", "")}"]

  _every_model_is_measured        = length(local._unmeasured) == 0 ? "" : "Without a measurement in lock.json: ${join(", ", local._unmeasured_told)}. No model is seated on a guess: where the engine cannot measure it, the intent must declare it (vram: {declared_mib: N, why: \"…\"}). Then run: corral lock"
  _measurement_adds_up            = length(local._not_adding_up) == 0 ? "" : "Totals in lock.json that are not the sum of their rows: ${join(", ", local._not_adding_up)}. The lock is written by corral and by nobody else. Run: corral lock"
  _measurement_belongs_to_argv    = length(local._other_argv) == 0 ? "" : "Measured for another command line than the one in lock.json: ${join(", ", local._other_argv)}. A measurement belongs to one argv, and that one must run; an edit by hand belongs in args. Run: corral lock"
  _declaration_covers_measurement = length(local._declared_too_low) == 0 ? "" : "Declared below what was measured: ${join(", ", local._declared_too_low)}. A declaration may add to a measurement, never take from it. Raise or remove declared_mib, then run: corral lock"
}

resource "terraform_data" "every_model_is_measured" {
  lifecycle {
    precondition {
      condition     = local._every_model_is_measured == ""
      error_message = local._every_model_is_measured
    }
  }
}

resource "terraform_data" "measurement_adds_up" {
  lifecycle {
    precondition {
      condition     = local._measurement_adds_up == ""
      error_message = local._measurement_adds_up
    }
  }
}

resource "terraform_data" "measurement_belongs_to_argv" {
  lifecycle {
    precondition {
      condition     = local._measurement_belongs_to_argv == ""
      error_message = local._measurement_belongs_to_argv
    }
  }
}

resource "terraform_data" "declaration_covers_measurement" {
  lifecycle {
    precondition {
      condition     = local._declaration_covers_measurement == ""
      error_message = local._declaration_covers_measurement
    }
  }
}

# What a loaded model really took.  A record speaks for one argv, and only when the model ran on a GPU.

locals {
  _ledger_is_read = var.measured == null || try(var.measured.version == 1 && alltrue([
    for record in var.measured.measurements :
    alltrue([for text in [record.model, record.argv_sha256, record.device] : length(text) > 0])
    && record.gpu_bytes >= 0 && floor(record.gpu_bytes) == record.gpu_bytes
  ]), false)
  _records = local._ledger_is_read ? try([for record in var.measured.measurements : record], []) : []

  _measured = { for id, vram in local._vram : id => max(0, [
    for record in local._records : record.gpu_bytes
    if record.model == id && record.argv_sha256 == try(vram.argv_sha256, null) && !can(regex("(?i)(^|[^a-z])cpu", record.device))
  ]...) }

  _ledger_is_readable = local._ledger_is_read ? "" : "measured.json is not a ledger of version 1: every measurement must have model, argv_sha256 and device, and gpu_bytes as a whole number. Restore it from version control, or remove it and measure again; then run: corral seat"
}

resource "terraform_data" "ledger_is_readable" {
  lifecycle {
    precondition {
      condition     = local._ledger_is_readable == ""
      error_message = local._ledger_is_readable
    }
  }
}

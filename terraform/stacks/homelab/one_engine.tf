# One build of llama.cpp predicts the seats, and the image's takes them.  corral lock compares the two; a plan warns.

locals {
  # The variable's image is in no lock: its tag names its build, or nothing does.
  _tag      = try(regex(":([^:/@]+)@", var.image)[0], "")
  _predicts = try(module.catalog.lock.engine.predicts, null)
  _runs     = var.image == null ? try(module.catalog.lock.engine.runs, null) : try(regex("(?:^|[-_.])(b[1-9][0-9]{3,6})(?:$|[-_.])", local._tag)[0], null)
}

check "one_engine" {
  assert {
    condition = contains(local._images_missing, "llama-swap") || local._runs == local._predicts # an image that is missing is refused
    error_message = join(" ", [
      "The server's image runs ${local._runs == null ? "an unknown build of llama.cpp" : "llama.cpp ${local._runs}"}, and ${coalesce(local._predicts, "an unknown one")} predicted the seats;",
      var.image == null ? "where the image's takes more, the seats have a row engine-drift for that (corral lock)." : "the variable image is in no lock, so no seat has a row engine-drift for it.",
      "For one build run: corral upgrade engine --to BUILD, or name another image.",
    ])
  }
}

# One build of llama.cpp predicts the seats, and the image's takes them.  corral lock compares the two; a plan warns.

locals {
  _predicts = try(module.catalog.lock.engine.predicts, null)

  # The variable's image is in no lock: its tag names its build, or nothing does; corral lock reads a tag by the same rule.
  _tag    = try(regex(":([^:/@]+)@", var.image)[0], "")
  _in_tag = distinct([for part in split("-", replace(local._tag, "/[_.]/", "-")) : part if can(regex("^b[1-9][0-9]{3,6}$", part))])
  _runs   = var.image == null ? try(module.catalog.lock.engine.runs, null) : length(local._in_tag) == 1 ? local._in_tag[0] : null

  _runs_words     = local._runs == null ? "an unknown build of llama.cpp" : "llama.cpp ${local._runs}"
  _predicts_words = coalesce(local._predicts, "an unknown one")
}

check "one_engine" {
  assert {
    condition = contains(local._images_missing, "llama-swap") || local._runs == local._predicts # an image that is missing is refused
    error_message = join(" ", [
      "The server's image runs ${local._runs_words}, and ${local._predicts_words} predicted the seats;",
      var.image == null
      ? "where the image's takes more, the seats have a row engine-drift for that (corral lock)."
      : "the variable image is in no lock, so no seat has a row engine-drift for it.",
      "For one build run: corral upgrade engine --to BUILD, or name another image.",
    ])
  }
}

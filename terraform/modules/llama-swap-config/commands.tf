# Joins the lock's argv into the one string that llama-swap splits again.  Its rules determine how a word is quoted:
# - it drops lines that begin with "#" and a backslash at the end of a line, both before it parses quotes:
#   empty quotes fence a newline inside a word, so that no line begins or ends inside the word;
# - then it applies POSIX rules without expansion: single quotes keep everything but themselves;
# - it replaces $${…} everywhere, quoted or not: only PORT may remain.

locals {
  _models_without_seat = var.preflight == null ? [] : [
    for id in keys(var.models) : id if !try(var.seats[id] >= 0 && floor(var.seats[id]) == var.seats[id], false)
  ]

  every_model_has_a_seat = length(local._models_without_seat) == 0

  _preflight = { for id in keys(var.models) : id => var.preflight == null ? [] : [
    var.preflight, "--model", id, "--need-mib", try(tostring(var.seats[id]), ""), "--",
  ] }

  # The lock's argv begins with the name of its engine.
  _on_vllm           = [for id, model in var.models : id if model.argv[0] == "vllm"]
  vllm_is_where_used = var.vllm != null || length(local._on_vllm) == 0

  # argv[0] is quoted like any word, and the program may be a path with spaces.
  _words = { for id, model in var.models : id => concat(
    local._preflight[id],
    [contains(local._on_vllm, id) ? coalesce(var.vllm, "vllm") : var.engine],
    [for word in slice(model.argv, 1, length(model.argv)) : replace(word, "$${STORE}", trimsuffix(var.store, "/"))],
  ) }
  _quoted = { for id, words in local._words : id => [
    for word in words : can(regex("^([A-Za-z0-9@%+=:,./_-]+|\\$\\{PORT\\})$", word)) ? word :
    "'${replace(replace(word, "'", "'\\''"), "\n", "''\n''")}'"
  ] }

  # One line for a flag and its value; llama-swap reads a line's end as a space.
  commands = { for id, words in local._quoted : id => join("", [
    for i, word in words : i == 0 ? word : "${can(regex("^--?[A-Za-z]", word)) ? "\n" : " "}${word}"
  ]) }
}

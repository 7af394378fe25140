locals {
  # What an intent may leave out; the same values as in corral.catalog.intent, which a test compares.
  _model_defaults = {
    args             = {}
    image_max_tokens = null
    reasoning        = "auto"
    slot             = "main"
  }

  _models = { for id in keys(local._entries) : id => merge(local._model_defaults, var.models[id]) }

  # The flags of the command line that runs, by name without dashes; the last one counts, as it does for the engine.
  _argv = { for id, entry in local._entries : id => try([for word in entry.argv : tostring(word)], []) }
  _flags = { for id, argv in local._argv : id => {
    for name, values in { for i, word in argv : trimprefix(trimprefix(word, "-"), "-") => try(argv[i + 1], "")... if can(regex("^--?[A-Za-z]", word)) } :
    name => values[length(values) - 1]
  } }
}

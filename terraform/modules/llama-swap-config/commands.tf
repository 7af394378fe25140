# The lock's argv becomes the one string that llama-swap splits again.  How it splits, and so how a word is quoted:
# - lines that begin with "#" are dropped and a backslash at a line's end is eaten, both before quotes are looked at:
#   a newline inside a word is fenced with empty quotes, so that no line begins or ends inside the word;
# - then POSIX rules without expansion: single quotes keep everything but themselves;
# - $${…} is replaced everywhere, quoted or not: only PORT may be left for it.

locals {
  _argv = { for id, entry in local.entries : id => [for word in try(entry.argv, []) : tostring(word)] }

  _argv_not_llama_server = [for id, argv in local._argv : id if try(argv[0], "") != "llama-server"]
  _argv_without_port = [for id, argv in local._argv : id if !anytrue([
    for i in range(max(length(argv) - 1, 0)) : argv[i] == "--port" && argv[i + 1] == "$${PORT}"
  ])]
  _argv_placeholders = flatten([for id, argv in local._argv : [
    for word in argv : "${id} (${word})" if strcontains(replace(replace(word, "$${STORE}", ""), "$${PORT}", ""), "$${")
  ]])

  # argv[0] is quoted like any word, and the program may be a path with spaces.
  _words = { for id, argv in local._argv : id => concat(
    local._preflight[id],
    [var.engine],
    [for word in slice(argv, min(1, length(argv)), length(argv)) : replace(word, "$${STORE}", trimsuffix(var.store, "/"))],
  ) }
  _quoted = { for id, words in local._words : id => [
    for word in words : can(regex("^([A-Za-z0-9@%+=:,./_-]+|\\$\\{PORT\\})$", word)) ? word :
    "'${replace(replace(word, "'", "'\\''"), "\n", "''\n''")}'"
  ] }

  # A flag and its value to a line; to llama-swap a line's end is a space.
  commands = { for id, words in local._quoted : id => join("", [
    for i, word in words : i == 0 ? word : "${can(regex("^--?[A-Za-z]", word)) ? "\n" : " "}${word}"
  ]) }
}

resource "terraform_data" "argv_is_llama_server" {
  lifecycle {
    precondition {
      condition     = length(local._argv_not_llama_server) == 0
      error_message = "No llama-server command in lock.json: ${join(", ", local._argv_not_llama_server)}. An entry's argv must begin with llama-server. Run: corral lock"
    }
  }
}

resource "terraform_data" "argv_takes_its_port" {
  lifecycle {
    precondition {
      condition     = length(local._argv_without_port) == 0
      error_message = "Without --port $${PORT} in lock.json: ${join(", ", local._argv_without_port)}. A model must listen where llama-swap looks for it. Run: corral lock"
    }
  }
}

resource "terraform_data" "argv_has_no_placeholder_left" {
  lifecycle {
    precondition {
      condition     = length(local._argv_placeholders) == 0
      error_message = "Unknown placeholders in lock.json: ${join(", ", local._argv_placeholders)}. Only $${STORE} and $${PORT} are ever filled. Correct the model's args, then run: corral lock"
    }
  }
}

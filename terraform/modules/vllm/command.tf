# The lock's words, which are what was seated, with the places of this pod: the store, the port, and an address that other pods reach.

locals {
  _places = { "$${PORT}" = tostring(var.port), "127.0.0.1" = "0.0.0.0" }

  _words = [for word in var.argv : lookup(local._places, word, replace(word, "$${STORE}", local.store))]

  # The key is read when the program starts, and stands in no object.
  command = concat(["sh", "-c", "ulimit -c 0 && VLLM_API_KEY=\"$(cat ${local.keys}/internal)\" && export VLLM_API_KEY && exec \"$@\"", "sh"], local._words)

  # Nothing is fetched and nothing is reported (https://docs.vllm.ai/en/stable/usage/usage_stats.html); only /tmp is writable.
  environment = {
    DO_NOT_TRACK            = "1"
    HF_HUB_OFFLINE          = "1"
    HOME                    = "/tmp"
    TORCHINDUCTOR_CACHE_DIR = "/tmp/inductor"
    TRANSFORMERS_OFFLINE    = "1"
    TRITON_CACHE_DIR        = "/tmp/triton"
    USER                    = "vllm" # PyTorch asks for the name of the user, whom the image does not know
    VLLM_CACHE_ROOT         = "/tmp/vllm"
    VLLM_NO_USAGE_STATS     = "1"
  }

  argv_is_of_vllm = try(var.argv[0] == "vllm" && var.argv[1] == "serve", false)
}

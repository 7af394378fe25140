# What the pod takes of the node, in MiB.  One model of a slot runs at a time, models of two slots side by side: a slot takes what its
# largest takes.  A model takes the rows that the lock has measured for the host, its cache of prompts (`--cache-ram`), and what every
# engine takes besides.  The weights that go to the card are only passed through page cache, which is given back when it is needed.
#
# Requested is what is taken for certain; the limit holds the caches of prompts too, which fill with use.

locals {
  _mib = 1024 * 1024

  server_mib = 1024 # llama-swap, and request bodies: four images of 64 MiB under way at a time take 440
  engine_mib = 768  # a llama-server besides its rows: the CUDA runtime's host side, its own code, threads

  _entries = { for model in var.models : model.id => try(var.lock.models[model.id], null) }
  _host_bytes = { for id, entry in local._entries : id => try(
    sum(values(entry.vram.host)),
    sum([for file in entry.files : file.size]), # nobody has measured it: at worst all of it stays on the host
    0,
  ) }
  _cache_mib = { for id, entry in local._entries : id => try(
    tonumber([for i, word in entry.argv : entry.argv[i + 1] if contains(["--cache-ram", "-cram"], word)][0]),
    8192, # llama-server's default
  ) }

  _sure_mib  = { for id, bytes in local._host_bytes : id => local.engine_mib + ceil(bytes / local._mib) }
  _slots     = { for model in var.models : model.slot => model.id... }
  _slot_sure = { for slot, ids in local._slots : slot => max([for id in ids : local._sure_mib[id]]...) }
  _slot_most = { for slot, ids in local._slots : slot => max([for id in ids : local._sure_mib[id] + local._cache_mib[id]]...) }

  memory_request_mib = local.server_mib + sum(concat([0], values(local._slot_sure)))
  memory_limit_mib   = local.server_mib + sum(concat([0], values(local._slot_most)))

  # On the node's disk there is /tmp and the log.  Nothing else can be written; a core never is.  In /tmp CUDA keeps what it has compiled.
  cuda_cache_mib    = 256
  tmp_mib           = local.cuda_cache_mib + 64 * length(local._slots)
  ephemeral_mib     = local.tmp_mib + 128
  _unlimited_caches = [for id, mib in local._cache_mib : id if mib < 0]
}

resource "terraform_data" "caches_have_a_limit" {
  lifecycle {
    precondition {
      condition     = length(local._unlimited_caches) == 0
      error_message = "Models with an unlimited cache of prompts (--cache-ram -1): ${join(", ", local._unlimited_caches)}. The pod's memory limit is reckoned from it. Set cache_ram_mib in the model, then run: corral lock"
    }
  }
}

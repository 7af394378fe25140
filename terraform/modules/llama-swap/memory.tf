# What the pod takes of the node, in MiB.  One model of a group runs at a time, models of two groups side by side: a group takes what its
# largest takes.  A model takes what the lock predicts for the host, its cache of prompts, and what every engine takes besides.  The
# weights that go to the card are only passed through page cache, which is given back when it is needed.
#
# Requested is what is taken for certain; the limit holds the caches of prompts too, which fill with use.

locals {
  _mib = 1024 * 1024

  server_mib = 1024 # llama-swap, and request bodies: four images of 64 MiB under way at a time take 440
  engine_mib = 768  # a llama-server besides its rows: the CUDA runtime's host side, its own code, threads

  # Where the engine could not predict it: at worst all of the model stays on the host.
  _host_bytes = { for id, model in var.models : id => sum(concat([0], try(values(model.predicted.host), model.files[*].size))) }

  _sure_mib = { for id, bytes in local._host_bytes : id => local.engine_mib + ceil(bytes / local._mib) }
  _most_mib = { for id, mib in local._sure_mib : id => mib + var.models[id].intent.cache_ram_mib }

  _groups = { for id, model in var.models : model.intent.group => id... }

  memory_request_mib = local.server_mib + sum(concat([0], [for ids in values(local._groups) : max([for id in ids : local._sure_mib[id]]...)]))
  memory_limit_mib   = local.server_mib + sum(concat([0], [for ids in values(local._groups) : max([for id in ids : local._most_mib[id]]...)]))

  # On the node's disk there is /tmp and the log.  Nothing else can be written; a core never is.  In /tmp CUDA keeps what it has compiled.
  cuda_cache_mib = 256
  tmp_mib        = local.cuda_cache_mib + 64 * length(local._groups)
  ephemeral_mib  = local.tmp_mib + 128
}

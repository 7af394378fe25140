# The pod's memory on the node, in MiB.  One model of each group can run in any case, and beside it those of its set: the request covers
# the largest model of a group, the limit the largest of its sets.  A model takes the lock's prediction for the host, its cache of
# prompts, and the fixed part of every engine.  The weights of the card only pass through the page cache, which the kernel frees on demand.
#
# Besides it the guard holds the bodies of requests until llama-swap has them: four of the largest together, one more that it may have
# to send again, and what it takes to read one.  Caddy passes bodies on as they come.
#
# The limit also covers the caches of prompts, which fill with use.

locals {
  _mib = 1024 * 1024

  server_mib = 1024 # llama-swap, and request bodies: four images of 64 MiB under way at a time take 440

  # More requests at a time are more bodies that llama-swap holds: each above ten adds a tenth.
  server_limit_mib = ceil(local.server_mib * max(10, var.concurrency) / 10)
  engine_mib       = 768 # a llama-server besides its rows: the CUDA runtime's host side, its own code, threads

  # Without a prediction: at worst the complete model stays on the host.
  _host_bytes = { for id, model in var.models : id => sum(concat([0], try(values(model.predicted.host), model.files[*].size))) }

  _sure_mib = { for id, bytes in local._host_bytes : id => local.engine_mib + ceil(bytes / local._mib) }
  _most_mib = { for id, mib in local._sure_mib : id => mib + var.models[id].intent.cache_ram_mib }

  _groups = { for id, model in var.models : model.intent.group => id... }
  _sets   = { for group, ids in local._groups : group => lookup(var.together, group, [for id in ids : [id]]) }

  engines = sum(concat([0], [for sets in values(local._sets) : max([for ids in sets : length(ids)]...)])) # that run at once, at most

  guard_mib = { request = 64, limit = 256 + 5 * var.body_mib }
  door_mib  = { request = 64, limit = 256 }
  copy_mib  = { request = 64, limit = 128 } # has ended when the rest begins

  memory_request_mib = local.server_mib + sum(concat([0], [for ids in values(local._groups) : max([for id in ids : local._sure_mib[id]]...)]))
  memory_limit_mib = local.server_limit_mib + sum(concat([0], [
    for sets in values(local._sets) : max([for ids in sets : sum([for id in ids : local._most_mib[id]])]...)
  ]))

  # The node's disk holds /tmp, where CUDA caches compiled code, and the log; the copy of llama-swap where its image is not the
  # engine's.  Nothing else is writable, and no core is written.
  cuda_cache_mib = 256
  programs_mib   = 128
  tmp_mib        = local.cuda_cache_mib + 64 * local.engines
  ephemeral_mib  = local.tmp_mib + 128 + (local._has_own_engine ? local.programs_mib : 0)

  # Caddy's /tmp holds its program, and what it would store.
  door_tmp_mib  = 128
  door_disk_mib = local.door_tmp_mib + 64
}

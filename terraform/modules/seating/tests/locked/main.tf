# Stands in for `corral lock`: a lock that belongs to the given intents, with a need and a ladder as wanted.

variable "models" {
  type = any
}

variable "needs" {
  description = "MiB by model; 1000 where none is given."
  type        = map(number)
  default     = {}
}

variable "ladders" {
  description = "MiB by context and model."
  type        = map(map(number))
  default     = {}
}

locals {
  argv = { for id, intent in var.models : id => ["llama-server", "-m", "$${STORE}/${id}/model.gguf", "-c", tostring(intent.context), "-fa", "on", "--port", "$${PORT}"] }
}

output "lock" {
  value = {
    version = 1
    models = { for id, intent in var.models : id => {
      intent_sha256 = sha256(jsonencode(intent))
      argv          = local.argv[id]
      vram = {
        engine          = "xllamacpp 2026.10.11549 (llama.cpp b11549)"
        argv_sha256     = sha256(jsonencode(local.argv[id]))
        headers         = [sha256(id)]
        context_trained = 40960
        gpu             = { weights = (lookup(var.needs, id, 1000) - 200) * 1048576, context = 50 * 1048576, compute = 33 * 1048576, projector = 0 }
        host            = { weights = 0, context = 0, compute = 1048576, projector = 0 }
        rules           = [{ name = "cuda-context-and-pools", bytes = 117 * 1048576, source = "a test" }]
        gpu_total       = lookup(var.needs, id, 1000) * 1048576
        ladder = [for context, mib in lookup(var.ladders, id, {}) : {
          context    = tonumber(context)
          gpu_total  = mib * 1048576
          host_total = 1048576
        }]
        projector_type = null
      }
    } }
  }
}

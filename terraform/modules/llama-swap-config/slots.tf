# A slot is a llama-swap group: one of its models runs at a time, and no slot evicts another's.

locals {
  _slot_members = { for id, model in local.models : model.slot => id... }

  slots = { for slot, ids in local._slot_members : slot => {
    swap       = true
    exclusive  = false
    persistent = false
    members    = ids
  } }
}

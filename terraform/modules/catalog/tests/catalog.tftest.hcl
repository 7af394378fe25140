# What is read of a lock that belongs to its catalog.

variables {
  path = "../../stacks/homelab/tests/catalogs/good"
}

run "a_fresh_lock_is_read" {
  command = plan

  assert {
    condition     = keys(output.lock.models) == ["chat", "look.1"] && output.lock.models.chat.intent.card == "t4" && output.lock.models.chat.argv[0] == "llama-server"
    error_message = "The models must be those of the lock, with all that it has of them."
  }

  assert {
    condition     = keys(output.lock.cards) == ["t4"] && output.lock.cards.t4.reserve_mib == 512 && output.lock.cards.t4.node == "k8s-node1"
    error_message = "The cards must be those of the lock, with the defaults that it has filled in."
  }

  assert {
    condition     = keys(output.lock.images) == ["door", "fetch", "llama-swap"]
    error_message = "The images must be those of the lock."
  }

  assert {
    condition     = output.lock.clients.desk.models == ["chat"] && output.lock.clients.desk.requests == 2 && output.lock.clients.photos.models == null
    error_message = "The clients must be those of the lock, and one without models may use all."
  }

  assert {
    condition     = jsonencode(output.lock) == jsonencode(jsondecode(file("../../stacks/homelab/tests/catalogs/good/lock.json")))
    error_message = "The lock must be there whole."
  }
}

# One pod on one card: the models of this stack sit together, and the pod goes where their card is.

locals {
  _cards_used = distinct(compact([for id, model in local.models : try(tostring(model.card), "")]))
  _card       = try(local._cards_used[0], "")
  node        = try(tostring(coalesce(yamldecode(local.cards[local._card]).node)), null)
}

resource "terraform_data" "models_are_on_one_card" {
  lifecycle {
    precondition {
      condition     = length(local._cards_used) <= 1
      error_message = "Models on ${length(local._cards_used)} cards: ${join("; ", [for card in local._cards_used : "${card} (${join(", ", [for id, model in local.models : id if try(tostring(model.card), "") == card])})"])}. This stack serves one card with one pod. Keep one card's models in this catalog, and give the others a catalog of their own."
    }
  }
}

resource "terraform_data" "card_names_its_node" {
  lifecycle {
    precondition {
      condition     = local._card == "" || !can(local.cards[local._card]) || length(local._cards_used) > 1 || local.node != null
      error_message = "Card ${local._card} has no node; the pod would start on any. Write it into cards/${local._card}.yaml, e.g. node: k8s-node1. For the names run: kubectl get nodes"
    }
  }
}

resource "terraform_data" "store_is_on_the_cards_node" {
  lifecycle {
    precondition {
      condition     = var.store.local == null || local.node == null || try(var.store.local.node == local.node, false)
      error_message = "The store is on node ${try(var.store.local.node, "none")}, card ${local._card} on node ${coalesce(local.node, "none")}; a local store must lie where the card is. Correct store.local.node, or node in cards/${local._card}.yaml."
    }
  }
}

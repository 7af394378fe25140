# One pod on one card: the models of this stack share a card, and the pod runs on its node.

locals {
  _models_on = { for id, model in module.catalog.models : model.intent.card => id... }
  _card      = try(keys(local._models_on)[0], "")
  node       = try(module.catalog.cards[local._card].node, null)
  _yields    = try(module.catalog.cards[local._card].yield, null) != null
}

resource "terraform_data" "models_are_on_one_card" {
  lifecycle {
    precondition {
      condition = length(local._models_on) == 1
      error_message = join(" ", [
        "Models on ${length(local._models_on)} cards: ${join("; ", [for card, ids in local._models_on : "${card} (${join(", ", ids)})"])}.",
        "This stack serves one card with one pod. Keep one card's models in this catalog, and give the others a catalog of their own.",
      ])
    }
  }
}

resource "terraform_data" "card_names_its_node" {
  lifecycle {
    precondition {
      condition = local.node != null
      error_message = join(" ", [
        "Card ${local._card} has no node; the pod would start on any. Write it into cards/${local._card}.yaml, e.g. node: k8s-node1.",
        "For the names run: kubectl get nodes",
      ])
    }
  }

  depends_on = [terraform_data.models_are_on_one_card]
}

resource "terraform_data" "yielding_card_has_its_exporter" {
  lifecycle {
    precondition {
      condition = !local._yields || var.card_exporter != null
      error_message = join(" ", [
        "Card ${local._card} has yield, and no exporter decides when a model is unloaded.",
        "Write card_exporter = {} into terraform.tfvars, or take yield out of cards/${local._card}.yaml.",
      ])
    }
  }

  depends_on = [terraform_data.models_are_on_one_card]
}

resource "terraform_data" "store_is_on_the_cards_node" {
  lifecycle {
    precondition {
      condition = var.store.local == null || try(var.store.local.node == local.node, false)
      error_message = join(" ", [
        "The store is on node ${try(var.store.local.node, "none")}, card ${local._card} on node ${coalesce(local.node, "none")};",
        "a local store must lie where the card is. Correct store.local.node, or node in cards/${local._card}.yaml.",
      ])
    }
  }

  depends_on = [terraform_data.card_names_its_node]
}

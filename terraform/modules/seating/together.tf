# Which models of a card run at the same time.  A group has the seat of its largest model in any case, and no other group takes it away.
# What the card has left goes to the groups that need least of it to keep all their models, the least first; the first one without
# enough gets the rest.  Within what a group has, its sets are all that fit and to which no further model can be added.
#
# As many sets as 12 models can form, 924, are within what llama-swap accepts, 1000 (Sperner: a set is no part of another).

locals {
  _most_models = 12

  _crowded_cards = sort([
    for name in keys(var.cards) : name if length([for model in values(var.models) : model if model.intent.card == name]) > local._most_models
  ])

  # MiB that a group lacks to keep all its models, and its place among the groups of its card by that.
  _lacks = { for name, groups in local._groups : name => { for group, taken in groups : group => sum(values(taken.models)) - taken.mib } }
  _order = { for name, lacks in local._lacks : name => sort([for group, mib in lacks : format("%012d\n%s", mib, group)]) }

  # MiB that the models of a group may take together.
  _limits = { for name, groups in local._groups : name => { for group, taken in groups : group => taken.mib + max(0, min(
    local._lacks[name][group],
    var.cards[name].vram_mib - local._used[name] - sum(concat([0], [
      for line in slice(local._order[name], 0, index(local._order[name], format("%012d\n%s", local._lacks[name][group], group))) :
      tonumber(split("\n", line)[0])
    ])),
  )) } }

  # Every choice of models of a group; of a crowded card each model alone.  Terraform evaluates both sides of a condition, so that
  # one around setproduct would not keep it from combining all models there are.
  _choices = { for name, groups in local._groups : name => { for group, taken in groups : group => concat(
    [for id in keys(taken.models) : [id] if contains(local._crowded_cards, name)],
    [
      for choice in setproduct([""], [""], [for id in keys(taken.models) : ["", id] if !contains(local._crowded_cards, name)]...) :
      compact(choice) if join("", choice) != ""
    ],
  ) } }

  # The largest first: of sets for which llama-swap would unload as many models it takes the first.
  together = { for name, groups in local._groups : name => { for group, taken in groups : group => [
    for line in sort([
      for choice, mib in { for choice in local._choices[name][group] : join("\n", choice) => sum(concat([0], [for id in choice : taken.models[id]])) } :
      format("%012d\n%s", 999999999999 - mib, choice)
      if contains(local._crowded_cards, name) || mib <= local._limits[name][group] && alltrue([
        for id, seat in taken.models : mib + seat > local._limits[name][group] || contains(split("\n", choice), id)
      ])
    ]) : slice(split("\n", line), 1, length(split("\n", line)))
  ] } }
}

check "models_are_few_enough_to_combine" {
  assert {
    condition = length(local._crowded_cards) == 0
    error_message = join(" ", [
      "Card ${join(", ", local._crowded_cards)} has more than ${local._most_models} models:",
      "one model of each group runs at a time there, also where more would fit.",
    ])
  }
}

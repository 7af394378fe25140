# Listed twice is: under one key two times, under two names, or as a tenant and as a model of this catalog.

locals {
  # Comments aside, a colon in a card's file ends a key: no value may hold one.
  _card_text = { for name, text in var.cards : name => replace(text, "/(?m)(^|\\s)#.*$/", "") }
  _card_keys = { for name, card in local._decoded : name => flatten([
    try(keys(card), []),
    try([for promised in values(card.tenants) : try(keys(promised), [])], []),
    try(keys(card.tenants), []),
  ]) }
  _keys_twice = { for name, found in local._card_keys : name => [
    for key in distinct(found) : key
    if length(regexall("(?m)(^|[{,?])\\s*[\"']?${replace(key, "/[^A-Za-z0-9_-]/", ".")}[\"']?\\s*:", local._card_text[name])) > length([for other in found : other if other == key])
  ] }

  # The pods that a tenant means: labels in any order; no namespace is every namespace, no selector all of its pods.
  _pods = { for name, card in local._cards : name => {
    for tenant in keys(card.tenants) : tenant => {
      namespace = try(coalesce(local._decoded[name].tenants[tenant].namespace), "")
      labels    = try([for label in split(",", local._decoded[name].tenants[tenant].selector) : trimspace(label)], [])
    }
  } }
  _same_pods = { for name, pods in local._pods : name => flatten([
    for one, a in pods : [
      for other, b in pods : "${one} and ${other}"
      if index(keys(pods), one) < index(keys(pods), other)
      && alltrue([for tenant in [a, b] : tenant.namespace != "" || length(tenant.labels) > 0])
      && (a.namespace == b.namespace || a.namespace == "" || b.namespace == "")
      && (length(setsubtract(a.labels, b.labels)) == 0 || length(setsubtract(b.labels, a.labels)) == 0)
    ]
  ]) }

  # What corral serves has its seat already.
  _ours = concat(
    ["llama-swap", "llama-server", "corral"],
    keys(var.models),
    distinct([for model in values(local._models) : model.slot]),
    flatten([for model in values(local._models) : try(model.aliases, [])]),
  )
  _ours_as_tenants = { for name, pods in local._pods : name => [
    for tenant, wanted in pods : tenant
    if contains(local._ours, tenant) || anytrue([for label in wanted.labels : endswith(label, "=llama-swap")])
  ] }

  _tenants_twice = flatten([for name, card in local._decoded : [
    [for key in local._keys_twice[name] : "${key} (two times in cards/${name}.yaml)" if can(card.tenants[key])],
    [for key in local._keys_twice[name] : "${key} (two times in cards/${name}.yaml)" if !anytrue([for other in local._keys_twice[name] : can(card.tenants[other])])],
    [for pair in try(local._same_pods[name], []) : "${pair} (they mean the same pods on card ${name})"],
    [for tenant in try(local._ours_as_tenants[name], []) : "${tenant} (on card ${name}: it is served from this catalog and has its seat by its lock)"],
  ]])

  _tenants_are_listed_once = length(local._tenants_twice) == 0 ? "" : "Listed twice: ${join(", ", local._tenants_twice)}. Every user of a card must be counted once. Remove one of the two, then run: corral seat"
}

resource "terraform_data" "tenants_are_listed_once" {
  lifecycle {
    precondition {
      condition     = local._tenants_are_listed_once == ""
      error_message = local._tenants_are_listed_once
    }
  }
}

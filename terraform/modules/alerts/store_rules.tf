# What is wrong with a model store.  The size of a model is a metric of the exporter, from the lock.

locals {
  _store = "store=~\"${join("|", [for store in sort(distinct(var.stores)) : replace(store, ".", "\\\\.")])}\""

  _room    = "min by (store) (corral_store_free_bytes{${local._store}})"
  _largest = "max by (store) (corral_store_model_bytes{${local._store}})"

  # A model that a Job is fetching now is not ready yet.
  _not_ready   = "max by (store, model, state) (corral_store_model_state{${local._store}, state!=\"ready\"}) == 1"
  _downloading = "max by (store) (corral_store_downloads{${local._store}}) > 0"

  # Of models that were asked for within a day: the others may be as cold as they are.
  _cached = "max by (store, model) (corral_store_model_cached_bytes{${local._store}})"
  _size   = "max by (store, model) (corral_store_model_bytes{${local._store}})"
  _asked  = "sum by (model) (increase(corral_requests_total{code=\"200\"}[1d])) > 0"

  _stores_behind = length(var.stores) == 0 ? [] : [
    "max by (store) (corral_store_lock_info{${local._store}, seal!=\"${var.seal}\"})",
  ]

  _store_alerts = [
    {
      alert           = "CorralStoreFilling"
      expr            = "${local._room} < ${local._largest}"
      for             = "15m"
      keep_firing_for = local._kept
      labels          = { severity = "warning" }
      annotations = {
        summary     = "The model store of {{ $labels.store }} has {{ $value | humanize1024 }}B left: less than its largest model takes."
        description = "The next version of that model cannot be fetched. `corral prune` lists what nothing needs any more."
        runbook_url = "${var.runbooks}/store-filling.md"
      }
    },
    {
      alert           = "CorralModelNotInStore"
      expr            = "${local._not_ready} unless on (store) (${local._downloading})"
      for             = "10m"
      keep_firing_for = local._kept
      labels          = { severity = "warning" }
      annotations = {
        summary     = "The model {{ $labels.model }} is {{ $labels.state }} in the model store of {{ $labels.store }}."
        description = "The store does not have what the applied lock names: a load may fail, or give answers of another version."
        runbook_url = "${var.runbooks}/model-not-in-store.md"
      }
    },
    {
      alert           = "CorralPageCacheCold"
      expr            = "(${local._cached} / ${local._size}) < 0.5 and on (model) (${local._asked})"
      for             = "1h"
      keep_firing_for = "0s"
      labels          = { severity = "info" }
      annotations = {
        summary     = "{{ $value | humanizePercentage }} of the model {{ $labels.model }} are in the page cache of the node that serves it."
        description = "It was asked for within a day, and its next load reads the rest from the store."
        runbook_url = "${var.runbooks}/page-cache-cold.md"
      }
    },
  ]

  _store_silent = [for store in sort(distinct(var.stores)) : {
    alert           = "CorralStoreSilent"
    expr            = "max by (store) (corral_store_up{store=\"${store}\"}) == 0 or absent(corral_store_up{store=\"${store}\"})"
    for             = "3m"
    keep_firing_for = "0s"
    labels          = { severity = "critical" }
    annotations = {
      summary     = "The model store of {{ $labels.store }} cannot be read, or its exporter is missing."
      description = "A model that has to be loaded hangs or fails; those that are loaded answer."
      runbook_url = "${var.runbooks}/store-silent.md"
    }
  }]

  _store_rules = concat([for rule in local._store_alerts : rule if length(var.stores) > 0], local._store_silent)
}

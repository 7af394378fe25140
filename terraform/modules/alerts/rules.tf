# What is wrong with a card, and who has caused it.  Promises are metrics of the exporter, from the lock: no figure of a card is repeated here.
#
# Series are reduced to the labels that are the alert's own: another pod of the exporter, after a restart, is the same alert.

locals {
  _card = "card=~\"${join("|", [for card in sort(distinct(var.cards)) : replace(card, ".", "\\\\.")])}\""

  _over    = "(max by (card, holder) (corral_held_bytes{${local._card}, kind=\"tenant\"}) - ${local._budget} > 0)"
  _budget  = "max by (card, holder) (corral_promised_bytes{${local._card}, kind=\"tenant\"})"
  _reserve = "(max by (card) (corral_promised_bytes{kind=\"reserve\"}) or 0 * max by (card) (corral_card_memory_bytes))"

  # Two readings in a row: between the end of an engine and the return of its memory there may be one.  Wherever in its interval a
  # target is scraped, 32 s have two of its answers.
  _lacking    = "corral_model_short_bytes{${local._card}}"
  _twice      = "min_over_time(${local._lacking}[32s]) > 0 and count_over_time(${local._lacking}[32s]) > 1"
  _short      = "min by (card, model) (${local._lacking} > 0 and ${local._twice})"
  _no_culprit = "label_replace(${local._short}, \"culprit\", \"unknown\", \"\", \"\")"

  # Kept for foreign holders.  Where it is not known what a tenant holds, one of them may be it.
  _for_all = "max by (card) (corral_others_promised_bytes) and on (card) corral_held_unknown{kind=\"tenant\"}"
  _spared  = "(${local._for_all} or on (card) ${local._reserve})"

  # The largest excess of each card, as `corral why` ranks them; 0 times it carries the name.  "(other)" is a sum of small ones.
  _excesses = join(" or ", [
    "(max by (card, holder) (corral_held_bytes{kind=~\"tenant|model\"}) - max by (card, holder) (corral_promised_bytes) > 0)",
    "(max by (card, holder) (corral_held_bytes{kind=~\"pod|process|hidden\", holder!=\"(other)\"}) > on (card) group_left () ${local._spared})",
  ])
  _culprit = "label_replace(topk by (card) (1, ${local._excesses}), \"culprit\", \"$1\", \"holder\", \"(.+)\")"

  # A model's has the label of CorralNoRoomForModel too, which it inhibits.
  _unknown        = "max by (card, kind, holder) (corral_held_unknown{${local._card}, kind=~\"model|tenant\"})"
  _unknown_holder = "label_replace(label_replace(${local._unknown}, \"model\", \"$1\", \"holder\", \"(.+)\"), \"model\", \"\", \"kind\", \"tenant\")"

  # With the card, which the promises of the same exporter know: another's models may have the same names.
  _failed_loads = "sum by (instance, model, reason) (increase(corral_failed_loads_total[5m]))"
  _model_seats  = "max by (instance, card, holder) (corral_promised_bytes{${local._card}, kind=\"model\"})"
  _model_cards  = "label_replace(1 + 0 * ${local._model_seats}, \"model\", \"$1\", \"holder\", \"(.+)\")"
  _loads_fail   = "sum by (card, model, reason) (${local._failed_loads} * on (instance, model) group_left (card) ${local._model_cards})"

  _refused = "sum by (instance, model) (increase(corral_requests_total{code=\"429\"}[1m]))"
  _queue   = "sum by (card, model) (${local._refused} * on (instance, model) group_left (card) ${local._model_cards})"

  # The part of ten minutes in which a model of the card was being loaded, where at least two of them were loaded again.
  _is_starting = "corral_model_state{state=\"starting\"}"
  _starting    = "${local._is_starting} * on (instance, model) group_left (card) ${local._model_cards}"
  _begins      = "(count_over_time((${local._is_starting} unless ${local._is_starting} offset 15s)[10m:15s]) > 1)"
  _again       = "count by (card) (count by (card, model) (${local._begins} * on (instance, model) group_left (card) ${local._model_cards})) > 1"
  _recorded    = "(count_over_time(${local._llama_swap}[10m:15s]) >= 20)"
  _loading     = "sum_over_time(max by (card) (${local._starting})[10m:15s]) / on (card) ${local._recorded}"
  _thrash      = "(${local._loading} > 0.5) and on (card) ${local._again}"

  # Every scrape asks an engine for its figures, and every five minutes for an answer.
  _not_well = "(min by (instance, model) ({__name__=~\"corral_engine_up|corral_probe_success\"}) == 0)"
  _hung     = "max by (card, model) (${local._not_well} + on (instance, model) group_left (card) ${local._model_cards})"

  _of_card    = "0 * max by (instance, card) (corral_card_memory_bytes{${local._card}}) + on (instance) group_left ()"
  _llama_swap = "max by (card) (${local._of_card} max by (instance) (corral_llama_swap_up))"

  _yielded = "sum by (card, model, reason) (increase(corral_yields_total{${local._card}}[10m]))"
  # An exporter of another lock than the one that the rules are from.
  _behind = "max by (card) (${local._of_card} max by (instance) (corral_lock_info{seal!=\"${var.seal}\"}))"

  _broken = "corral_tenant_expectations_broken{${local._card}}"

  _interval = "15s"
  # What is no longer known ends the alerts about it.  These stay until the alert about that fires, which inhibits them.
  _kept = "3m"

  _rules = concat([
    {
      alert           = "CorralTenantOverBudget"
      expr            = local._over
      for             = "15s"
      keep_firing_for = local._kept
      labels          = { severity = "warning" }
      annotations = {
        summary     = "{{ $labels.holder }} holds {{ $value | humanize1024 }}B more of the card {{ $labels.card }} than its budget."
        description = "What it holds beyond its budget is missing for the next model. `corral card` shows its pods, and since when it was observed."
        runbook_url = "${var.runbooks}/tenant-over-budget.md"
      }
    },
    {
      alert           = "CorralNoRoomForModel"
      expr            = "${local._short} + on (card) group_left (culprit) (0 * ${local._culprit}) or on (card, model) ${local._no_culprit}"
      for             = "0s" # a culprit that changes must not begin it anew
      keep_firing_for = local._kept
      labels          = { severity = "critical" }
      annotations = {
        summary     = "The card {{ $labels.card }} lacks {{ $value | humanize1024 }}B for the model {{ $labels.model }}; largest excess: {{ $labels.culprit }}."
        description = "Each request that needs its load will get status 503 until there is room. `corral why {{ $labels.model }}` has the next command."
        runbook_url = "${var.runbooks}/no-room-for-model.md"
      }
    },
    {
      alert           = "CorralDriverSilent"
      expr            = "max by (card) (corral_unknown{${local._card}}) == 1"
      for             = "1m"
      keep_firing_for = local._kept
      labels          = { severity = "critical" }
      annotations = {
        summary     = "What is held on the card {{ $labels.card }} is unknown."
        description = "NVIDIA's driver does not answer as it should: no alert about memory can fire. `corral card` has the reason."
        runbook_url = "${var.runbooks}/driver-silent.md"
      }
    },
    {
      alert           = "CorralHolderUnknown"
      expr            = "${local._unknown_holder} == 1 unless on (card) corral_unknown"
      for             = "2m"
      keep_firing_for = local._kept
      labels          = { severity = "warning" }
      annotations = {
        summary     = "What the {{ $labels.kind }} {{ $labels.holder }} holds of the card {{ $labels.card }} is unknown."
        description = "A process on the card has no known owner, or no figure: an excess of this holder would not be noticed."
        runbook_url = "${var.runbooks}/holder-unknown.md"
      }
    },
    {
      alert           = "CorralLlamaSwapSilent"
      expr            = "${local._llama_swap} == 0"
      for             = "5m" # a new key reaches both sides within two minutes
      keep_firing_for = "0s"
      labels          = { severity = "critical" }
      annotations = {
        summary     = "llama-swap on the node of the card {{ $labels.card }} does not answer the exporter."
        description = "Its pod is not ready, or the exporter's key is not valid: no alert about loads can fire. `corral status` has the reason."
        runbook_url = "${var.runbooks}/llama-swap-silent.md"
      }
    },
    {
      alert           = "CorralEngineHung"
      expr            = local._hung
      for             = "2m"
      keep_firing_for = "0s"
      labels          = { severity = "critical" }
      annotations = {
        summary     = "The engine of the model {{ $labels.model }} is loaded and does not answer."
        description = "Its requests wait for ever, and /health is green. `corral why {{ $labels.model }}` has the reason."
        runbook_url = "${var.runbooks}/engine-hung.md"
      }
    },
    {
      alert           = "CorralLoadsFail"
      expr            = "${local._loads_fail} > 0"
      for             = "1m" # CorralNoRoomForModel, which inhibits it, needs two readings
      keep_firing_for = "0s" # the expression looks back for five minutes
      labels          = { severity = "warning" }
      annotations = {
        summary     = "Loads of the model {{ $labels.model }} fail: {{ $labels.reason }}."
        description = "Its requests were refused with status 503 within the last five minutes. `corral why {{ $labels.model }}` has the reason."
        runbook_url = "${var.runbooks}/model-fails-to-load.md"
      }
    },
    {
      alert           = "CorralQueueFull"
      expr            = "${local._queue} > 0"
      for             = "3m" # refused in each minute of them: one burst of requests is no alert
      keep_firing_for = "0s"
      labels          = { severity = "warning" }
      annotations = {
        summary     = "Requests for the model {{ $labels.model }} are refused: it has as many as it accepts."
        description = "Clients get status 429 and must try again. `corral why {{ $labels.model }}` has the number that it accepts, and those under way."
        runbook_url = "${var.runbooks}/queue-full.md"
      }
    },
    {
      alert           = "CorralThrash"
      expr            = local._thrash
      for             = "0s" # the expression looks back for ten minutes
      keep_firing_for = "0s"
      labels          = { severity = "warning" }
      annotations = {
        summary     = "Models of the card {{ $labels.card }} were being loaded for {{ $value | humanizePercentage }} of the last ten minutes."
        description = "Requests for models that take turns unload each other's. `corral timeline --since 30m` has which."
        runbook_url = "${var.runbooks}/thrash.md"
      }
    },
    {
      alert           = "CorralExpectationBroken"
      expr            = "max by (card, holder) (label_replace(${local._broken}, \"holder\", \"$1\", \"tenant\", \"(.+)\")) > 0"
      for             = "5m"
      keep_firing_for = local._kept
      labels          = { severity = "warning" }
      annotations = {
        summary     = "The tenant {{ $labels.holder }} of the card {{ $labels.card }} is not set as its card's file expects."
        description = "Without these settings it may outgrow its budget. `corral status` names the variable and its value."
        runbook_url = "${var.runbooks}/expectation-broken.md"
      }
    },
    {
      alert           = "CorralModelYielded"
      expr            = "${local._yielded} > 0"
      for             = "0s" # the expression looks back for ten minutes
      keep_firing_for = "0s"
      labels          = { severity = "info" }
      annotations = {
        summary     = "The idle model {{ $labels.model }} was unloaded for a neighbour on the card {{ $labels.card }}: {{ $labels.reason }}."
        description = "Its next request loads it again, if there is room. `corral timeline --since 30m` names the tenant, and what was free."
        runbook_url = "${var.runbooks}/model-yielded.md"
      }
    },
    {
      alert           = "CorralLockBehind"
      expr            = join(" or ", concat([local._behind], local._stores_behind))
      for             = "15m" # an apply delivers the rules first, and waits for downloads and a new pod
      keep_firing_for = local._kept
      labels          = { severity = "warning" }
      annotations = {
        summary     = "The exporter of {{ $labels.card }}{{ $labels.store }} has another lock than the alerts."
        description = "The catalog's lock is not applied completely: promises, models and files are another one's. `corral plan` has the difference."
        runbook_url = "${var.runbooks}/lock-behind.md"
      }
    },
    ],
    [for card in sort(distinct(var.cards)) : {
      alert           = "CorralExporterMissing"
      expr            = "absent(corral_card_memory_bytes{card=\"${card}\"})"
      for             = "1m"
      keep_firing_for = "0s"
      labels          = { severity = "critical" }
      annotations = {
        summary     = "No exporter reports the card {{ $labels.card }}."
        description = "Who holds the card is not known, and no other alert about the card can fire."
        runbook_url = "${var.runbooks}/exporter-missing.md"
      }
    }],
    local._store_rules,
    local._latency_rules,
  )

  rules = { groups = [{ name = "corral-card", interval = local._interval, rules = local._rules }] }

  # Alertmanager's: of what an alert explains, or makes unknown, no other notification is sent.
  inhibit_rules = [
    {
      source_matchers = ["alertname=\"CorralExporterMissing\""]
      target_matchers = ["alertname=~\"Corral.+\""]
      equal           = ["card"]
    },
    {
      source_matchers = ["alertname=\"CorralHolderUnknown\"", "kind=\"tenant\""]
      target_matchers = ["alertname=~\"CorralTenantOverBudget|CorralExpectationBroken\""]
      equal           = ["card", "holder"]
    },
    {
      source_matchers = ["alertname=\"CorralHolderUnknown\"", "kind=\"model\""]
      target_matchers = ["alertname=\"CorralNoRoomForModel\""]
      equal           = ["card", "model"]
    },
    {
      source_matchers = ["alertname=\"CorralNoRoomForModel\""]
      target_matchers = ["alertname=\"CorralLoadsFail\""]
      equal           = ["card", "model"]
    },
    {
      source_matchers = ["alertname=\"CorralDriverSilent\""]
      target_matchers = ["alertname=~\"CorralTenantOverBudget|CorralNoRoomForModel|CorralHolderUnknown\""]
      equal           = ["card"]
    },
    {
      source_matchers = ["alertname=\"CorralStoreSilent\""]
      target_matchers = ["alertname=~\"CorralStoreFilling|CorralModelNotInStore|CorralPageCacheCold|CorralLockBehind\""]
      equal           = ["store"]
    },
    {
      source_matchers = ["alertname=~\"CorralQueueFull|CorralEngineHung|CorralNoRoomForModel\""]
      target_matchers = ["alertname=\"CorralLatencyBudgetBurnt\""]
      equal           = ["card", "model"]
    },
    {
      source_matchers = ["alertname=\"CorralThrash\""]
      target_matchers = ["alertname=\"CorralLatencyBudgetBurnt\""]
      equal           = ["card"]
    },
  ]

  _metadata = {
    name      = "corral-card"
    namespace = var.namespace
    labels    = merge({ "app.kubernetes.io/part-of" = "corral" }, var.labels)
  }

  operator_objects = concat([
    { apiVersion = "monitoring.coreos.com/v1", kind = "PrometheusRule", metadata = local._metadata, spec = local.rules },
    {
      apiVersion = "monitoring.coreos.com/v1"
      kind       = "ServiceMonitor"
      metadata   = local._metadata
      spec = {
        selector  = { matchLabels = { "app.kubernetes.io/name" = "card-exporter" } }
        endpoints = [{ port = "metrics", interval = local._interval }]
      }
    },
    ],
    [for stores in [sort(distinct(var.stores))] : {
      apiVersion = "monitoring.coreos.com/v1"
      kind       = "ServiceMonitor"
      metadata   = merge(local._metadata, { name = "corral-store" })
      spec = {
        namespaceSelector = { matchNames = stores }
        selector          = { matchLabels = { "app.kubernetes.io/name" = "store-exporter" } }
        endpoints         = [{ port = "metrics", interval = local._interval }]
      }
  } if length(stores) > 0])
}

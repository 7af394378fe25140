# A latency budget of which too much is used too fast.  The budgets are metrics of the exporter, from the lock.
#
# https://sre.google/workbook/alerting-on-slos/ for an objective of 95 %: 5 of 100 requests may be slow, so that no burn rate is above 20.
# The long window has the requests that a conclusion needs, the short one shows that it is still so.

locals {
  _may_be_slow = 0.05

  # Where each request is slow with 5 %, more than half of 10 are so once in 360,000 times, and a fifth of 30 once in 1,700.
  _burn_windows = [
    { long = "1h", short = "5m", burn_rate = 10, least = 10 },
    { long = "6h", short = "30m", burn_rate = 4, least = 30 },
  ]

  _budget_requests = { for window in ["5m", "30m", "1h", "6h"] : window =>
    "sum by (card, model, consumer) (increase(corral_latency_budget_requests_total{${local._card}}[${window}]))"
  }
  _slow_share = { for window, requests in local._budget_requests : window =>
    "(sum by (card, model, consumer) (increase(corral_latency_budget_slow_requests_total{${local._card}}[${window}])) / ${requests})"
  }
  _burns = [for one in local._burn_windows : join(" and ", [
    "${local._slow_share[one.long]} > ${one.burn_rate * local._may_be_slow}",
    "${local._slow_share[one.short]} > ${one.burn_rate * local._may_be_slow}",
    "${local._budget_requests[one.long]} >= ${one.least}",
  ])]

  _latency_rules = [
    {
      alert           = "CorralLatencyBudgetBurnt"
      expr            = join(" or ", [for burns in local._burns : "(${burns})"])
      for             = "0s"  # the expression looks back for an hour
      keep_firing_for = "10m" # a consumer of ten requests an hour has five minutes without one
      labels          = { severity = "warning" }
      annotations = {
        summary     = "{{ $value | humanizePercentage }} of the requests to {{ $labels.model }} exceed the latency budget of {{ $labels.consumer }}; 5 % may."
        description = "It was so for an hour, or for six, and it still is. `corral timeline --since 6h` has loads, swaps and who held the card meanwhile."
        runbook_url = "${var.runbooks}/latency-budget.md"
      }
    },
  ]
}

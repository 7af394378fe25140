# What the pack is made of.  Whether its alerts fire is tested with promtool: tools/tests/cluster/test_alert_rules.py.

variables {
  cards  = ["t4"]
  stores = ["llama-cpp"]
  seal   = "0000000000000000000000000000000000000000000000000000000000000000"
}

run "every_alert_has_a_runbook_a_severity_and_a_sentence" {
  command = plan

  assert {
    condition = length(yamldecode(output.rules).groups[0].rules) == 18 && alltrue([for rule in yamldecode(output.rules).groups[0].rules :
      fileexists("../../../${rule.annotations.runbook_url}") && contains(["info", "warning", "critical"], rule.labels.severity) && endswith(rule.annotations.summary, ".")
    ])
    error_message = "An alert without a next step is noise."
  }
}

run "each_card_has_an_alert_for_its_absence" {
  command = plan

  variables {
    cards = ["t4", "a10"]
  }

  assert {
    condition     = [for rule in yamldecode(output.rules).groups[0].rules : rule.expr if rule.alert == "CorralExporterMissing"] == ["absent(corral_card_memory_bytes{card=\"a10\"})", "absent(corral_card_memory_bytes{card=\"t4\"})"]
    error_message = "absent() keeps the label only where it is equal to a value."
  }
}

run "without_a_store_there_is_no_alert_about_one" {
  command = plan

  variables {
    stores = []
  }

  assert {
    condition     = length(yamldecode(output.rules).groups[0].rules) == 14 && length(split("---\n", output.operator_objects)) == 2
    error_message = "No exporter reports it."
  }
}

run "each_store_has_an_alert_for_its_absence" {
  command = plan

  variables {
    stores = ["llama-cpp", "a.b"]
  }

  assert {
    condition = [for rule in yamldecode(output.rules).groups[0].rules : rule.expr if rule.alert == "CorralStoreSilent"] == [
      for store in ["a.b", "llama-cpp"] : "max by (store) (corral_store_up{store=\"${store}\"}) == 0 or absent(corral_store_up{store=\"${store}\"})"
    ]
    error_message = "absent() keeps the label only where it is equal to a value."
  }

  assert {
    condition     = [for rule in yamldecode(output.rules).groups[0].rules : rule.alert if strcontains(rule.expr, "store=~\"a\\\\.b|llama-cpp\"")] == ["CorralLockBehind", "CorralStoreFilling", "CorralModelNotInStore", "CorralPageCacheCold"]
    error_message = "A point in a name is no pattern."
  }
}

run "a_malformed_seal_is_refused" {
  command = plan

  variables {
    seal = "x\"} or vector(1"
  }

  expect_failures = [var.seal]
}

run "a_store_that_is_no_name_is_refused" {
  command = plan

  variables {
    stores = ["x\"} or vector(1"]
  }

  expect_failures = [var.stores]
}

run "the_operators_objects_are_the_same_rules_and_a_scrape" {
  command = plan

  variables {
    labels = { release = "kube-prometheus-stack" }
  }

  assert {
    condition     = jsonencode(yamldecode(split("---\n", output.operator_objects)[0]).spec) == jsonencode(yamldecode(output.rules))
    error_message = "There must be one pack."
  }

  assert {
    condition = alltrue([for text in split("---\n", output.operator_objects) :
      yamldecode(text).metadata == { name = strcontains(text, "store-exporter") ? "corral-store" : "corral-card", namespace = "corral-exporter", labels = { "app.kubernetes.io/part-of" = "corral", release = "kube-prometheus-stack" } }
    ])
    error_message = "The operator finds both by the same labels."
  }

  assert {
    condition     = yamldecode(split("---\n", output.operator_objects)[1]).spec.endpoints[0].port == "metrics"
    error_message = "The exporter's Service calls the port metrics."
  }

  assert {
    condition     = yamldecode(split("---\n", output.operator_objects)[2]).spec.namespaceSelector.matchNames == ["llama-cpp"]
    error_message = "The exporter of a store is in the store's namespace."
  }
}

run "each_dashboard_is_a_config_map_that_grafanas_sidecar_finds" {
  command = plan

  assert {
    condition = { for text in split("---\n", output.dashboards) : yamldecode(text).metadata.name => [
      yamldecode(text).metadata.labels.grafana_dashboard, [for content in values(yamldecode(text).data) : jsondecode(content).uid]
      ] } == {
      corral-dashboard-card     = ["1", ["corral-card"]]
      corral-dashboard-incident = ["1", ["corral-incident"]]
      corral-dashboard-models   = ["1", ["corral-models"]]
      corral-dashboard-store    = ["1", ["corral-store"]]
    }
    error_message = "The sidecar reads ConfigMaps with this label."
  }
}

run "a_card_that_is_no_name_is_refused" {
  command = plan

  variables {
    cards = ["t4\"} or vector(1"]
  }

  expect_failures = [var.cards]
}

run "a_place_of_the_runbooks_that_ends_with_a_slash_is_refused" {
  command = plan

  variables {
    runbooks = "https://runbooks.example/"
  }

  expect_failures = [var.runbooks]
}

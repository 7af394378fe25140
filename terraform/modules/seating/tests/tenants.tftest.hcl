# A tenant that is listed twice, in each way that a catalog allows; "tenants_that_are_different_pass" has the near misses.

variables {
  models = {
    chat = { card = "t4", context = 4096, modalities = ["text"], slot = "talk", aliases = ["triage"] }
  }
}

run "locked" {
  module {
    source = "./tests/locked"
  }
}

run "tenants_that_are_different_pass" {
  command = plan

  variables {
    lock = run.locked.lock
    cards = {
      t4 = <<-EOT
        vram_mib: 15360 # node: is not a key here
        node: k8s-node1
        tenants:
          # was: {node: {budget_mib: 5}}
          node:        {budget_mib: 100, namespace: a, selector: app=one}
          budget_mib:  {budget_mib: 100, namespace: a, selector: app=two}
          app:         {budget_mib: 100, namespace: b, selector: app=one}
          my-app:      {budget_mib: 100, namespace: c, selector: "app=one,tier=x"}
          app-2:
            budget_mib: 100
            namespace: c
            selector: app=one,tier=y
          desktop:     {budget_mib: 100}
          compositor:  {budget_mib: 100}
      EOT
    }
  }

  assert {
    condition     = length(output.chart.cards.t4.tenants) == 7
    error_message = "Tenants of other namespaces, other labels or no pods at all are different tenants."
  }
}

run "one_tenant_may_sit_on_two_cards" {
  command = plan

  variables {
    lock = run.locked.lock
    cards = {
      t4 = "{vram_mib: 15360, tenants: {photos: {budget_mib: 100, namespace: a, selector: app=one}}}"
      p4 = "{vram_mib: 15360, tenants: {photos: {budget_mib: 100, namespace: a, selector: app=one}}}"
    }
  }

  assert {
    condition     = length(output.chart.cards) == 2
    error_message = "A tenant has a budget on each card that it uses."
  }
}

run "a_key_that_stands_twice_is_refused" {
  command = plan

  variables {
    lock = run.locked.lock
    cards = {
      t4 = <<-EOT
        vram_mib: 15360
        tenants:
          photos: {budget_mib: 10726}
          frigate: {budget_mib: 100}
          "photos": {budget_mib: 100}
      EOT
    }
  }

  expect_failures = [terraform_data.tenants_are_listed_once]
}

run "a_key_that_stands_twice_in_one_line_is_refused" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { t4 = "{vram_mib: 15360, tenants: {photos: {budget_mib: 100}, photos: {budget_mib: 100}}}" }
  }

  expect_failures = [terraform_data.tenants_are_listed_once]
}

run "a_budget_that_stands_twice_is_refused" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { t4 = "{vram_mib: 15360, tenants: {photos: {budget_mib: 10726, budget_mib: 100}}}" }
  }

  expect_failures = [terraform_data.tenants_are_listed_once]
}

run "all_tenants_listed_twice_are_refused" {
  command = plan

  variables {
    lock = run.locked.lock
    cards = {
      t4 = <<-EOT
        vram_mib: 15360
        tenants:
          photos: {budget_mib: 10726}
        tenants:
          frigate: {budget_mib: 100}
      EOT
    }
  }

  expect_failures = [terraform_data.tenants_are_listed_once]
}

run "the_same_pods_under_two_names_are_refused" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { t4 = "{vram_mib: 15360, tenants: {a: {budget_mib: 1, namespace: n, selector: 'app=x,tier=y'}, b: {budget_mib: 1, namespace: n, selector: 'tier=y,app=x'}}}" }
  }

  expect_failures = [terraform_data.tenants_are_listed_once]
}

run "a_selector_inside_another_is_refused" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { t4 = "{vram_mib: 15360, tenants: {a: {budget_mib: 1, namespace: n, selector: 'app=x,tier=y'}, b: {budget_mib: 1, namespace: n, selector: 'app=x'}}}" }
  }

  expect_failures = [terraform_data.tenants_are_listed_once]
}

run "a_namespace_and_a_pod_in_it_are_refused" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { t4 = "{vram_mib: 15360, tenants: {a: {budget_mib: 1, namespace: n}, b: {budget_mib: 1, namespace: n, selector: 'app=x'}}}" }
  }

  expect_failures = [terraform_data.tenants_are_listed_once]
}

run "a_pod_of_any_namespace_and_the_same_in_one_are_refused" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { t4 = "{vram_mib: 15360, tenants: {a: {budget_mib: 1, selector: 'app=x'}, b: {budget_mib: 1, namespace: n, selector: 'app=x'}}}" }
  }

  expect_failures = [terraform_data.tenants_are_listed_once]
}

run "llama_swap_as_a_tenant_is_refused" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { t4 = "{vram_mib: 15360, tenants: {llama-swap: {budget_mib: 5000}}}" }
  }

  expect_failures = [terraform_data.tenants_are_listed_once]
}

run "llama_swap_under_another_name_is_refused" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { t4 = "{vram_mib: 15360, tenants: {language: {budget_mib: 5000, namespace: llama-cpp, selector: app.kubernetes.io/name=llama-swap}}}" }
  }

  expect_failures = [terraform_data.tenants_are_listed_once]
}

run "a_slot_as_a_tenant_is_refused" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { t4 = "{vram_mib: 15360, tenants: {talk: {budget_mib: 5000}}}" }
  }

  expect_failures = [terraform_data.tenants_are_listed_once]
}

run "a_model_as_a_tenant_is_refused" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { t4 = "{vram_mib: 15360, tenants: {chat: {budget_mib: 5000}}}" }
  }

  expect_failures = [terraform_data.tenants_are_listed_once]
}

run "a_model_as_a_tenant_by_its_alias_is_refused" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { t4 = "{vram_mib: 15360, tenants: {triage: {budget_mib: 5000}}}" }
  }

  expect_failures = [terraform_data.tenants_are_listed_once]
}

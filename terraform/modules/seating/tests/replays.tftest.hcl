# Two failures that a shared T4 has seen, and the set that must go on working there.

variables {
  cards = {
    t4 = <<-EOT
      vram_mib: 15360
      reserve_mib: 512
      compute_capability: "7.5"
      tenants:
        immich-ml:     {budget_mib: 2100, namespace: immich, selector: app=immich-machine-learning}
        immich-server: {budget_mib: 1200, namespace: immich, selector: app=immich-server}
        frigate:       {budget_mib: 2300, namespace: frigate, selector: app=frigate}
    EOT
  }
  models = {
    minicpm-v-4-5 = { card = "t4", context = 3072, modalities = ["text", "image"], reasoning = "off" }
    qwen3-8b      = { card = "t4", context = 16384, modalities = ["text"], reasoning = "off", aliases = ["triage"] }
    qwen3vl-4b    = { card = "t4", context = 3072, modalities = ["text", "image"], reasoning = "off" }
    qwen3vl-8b    = { card = "t4", context = 3072, modalities = ["text", "image"], reasoning = "off" }
  }
  needs = {
    minicpm-v-4-5 = 6500
    qwen3-8b      = 6997
    qwen3vl-4b    = 4030
    qwen3vl-8b    = 6530
  }
  ladders = {
    qwen3-8b = { 2048 = 4969, 4096 = 5257, 8192 = 5833, 16384 = 6997, 32768 = 9333, 40960 = 10500 }
  }
}

run "locked" {
  module {
    source = "./tests/locked"
  }
}

run "the_homelab_seats" {
  command = plan

  variables {
    lock = run.locked.lock
  }

  assert {
    condition     = output.chart.cards.t4.fits && output.chart.cards.t4.free_mib == 15360 - 512 - 5600 - 6997
    error_message = "The four models share one slot, beside the three tenants."
  }
}

run "immich_ml_with_10726_mib_is_refused" {
  command = plan

  variables {
    lock  = run.locked.lock
    cards = { t4 = replace(var.cards.t4, "budget_mib: 2100", "budget_mib: 10726") }
  }

  expect_failures = [terraform_data.card_holds_its_set]
}

run "locked_with_the_budget_that_was_typed" {
  module {
    source = "./tests/locked"
  }

  variables {
    models = { qwen3-8b = merge(var.models.qwen3-8b, { vram = { declared_mib = 5000, why = "size of the file" } }) }
  }
}

run "the_5000_mib_declared_for_the_model_that_needs_6996_are_refused" {
  command = plan

  variables {
    models = { qwen3-8b = merge(var.models.qwen3-8b, { vram = { declared_mib = 5000, why = "size of the file" } }) }
    lock = { version = 1, models = { qwen3-8b = merge(run.locked_with_the_budget_that_was_typed.lock.models.qwen3-8b, {
      vram = merge(run.locked_with_the_budget_that_was_typed.lock.models.qwen3-8b.vram, { declared = { mib = 5000, why = "size of the file" } })
    }) } }
  }

  expect_failures = [terraform_data.declaration_covers_measurement]
}

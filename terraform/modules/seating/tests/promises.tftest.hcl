# What an exporter is given of it: the whole of a card, in bytes.

variables {
  cards = {
    t4 = {
      vram_mib    = 15360
      reserve_mib = 512
      yield       = { floor_mib = 1024, idle_seconds = 60 }
      tenants = {
        immich-ml = { budget_mib = 2100, namespace = "immich", selector = "app=immich-machine-learning", expects = { env = { MACHINE_LEARNING_MODEL_TTL = ">0" } } }
        plex      = { budget_mib = 100, unit = "plex.service" }
      }
    }
    laptop = { vram_mib = 4096, reserve_mib = 512, tenants = {} }
  }
  models = {
    chat = {
      intent = { card = "t4", group = "main", latency = [
        { consumer = "desk", prompt_tokens = 800, answer_tokens = 120, p95_seconds = 4.5, requests_at_once = 2, cold = "excluded" }
      ] }
      predicted = { gpu_bytes = 7000000000 }
      measured  = { gpu_bytes = 6996000000 }
    }
  }
}

run "an_exporter_is_given_all_that_is_promised_in_bytes" {
  command = plan

  assert {
    condition = jsondecode(jsonencode(output.promises.t4)) == {
      vram_bytes    = 16106127360
      reserve_bytes = 536870912
      yield         = { floor_bytes = 1073741824, idle_seconds = 60 }
      tenants = {
        immich-ml = { budget_bytes = 2202009600, namespace = "immich", selector = "app=immich-machine-learning", unit = null, expects = { MACHINE_LEARNING_MODEL_TTL = ">0" } }
        plex      = { budget_bytes = 104857600, namespace = null, selector = null, unit = "plex.service", expects = {} }
      }
      models = { chat = {
        group   = "main", seat_bytes = 7000293376, predicted_bytes = 7000000000, measured_bytes = 6996000000,
        latency = [{ consumer = "desk", prompt_tokens = 800, answer_tokens = 120, p95_seconds = 4.5, cold = "excluded" }]
      } }
    }
    error_message = "The promises must be those of the lock, in bytes."
  }
}

run "a_card_without_a_word_about_it_yields_nothing" {
  command = plan

  assert {
    condition     = output.promises.laptop.yield == null && output.promises.laptop.models == {}
    error_message = "It must be off by default, and a model of another card is none of it."
  }
}

run "a_lock_from_before_latency_budgets_has_none" {
  command = plan

  variables {
    models = { chat = { intent = { card = "t4", group = "main" }, predicted = { gpu_bytes = 7000000000 } } }
  }

  assert {
    condition     = length(output.promises.t4.models.chat.latency) == 0
    error_message = "It must be read as before."
  }
}

# What the pod takes of the node.

mock_provider "kubernetes" {}

variables {
  api_key_env = "CORRAL_SWAP_KEY"
  caddy       = "{\"admin\": {}}"
  guard       = "{\"version\": 1}"
  door_image  = "caddy:2.11-alpine@sha256:3333333333333333333333333333333333333333333333333333333333333333"
  guard_image = "python:3.13-slim@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  namespace   = "llama-cpp"
  claim       = "models"
  config      = "models: {a: {}}"
  image       = "example/llama-swap:v1@sha256:1111111111111111111111111111111111111111111111111111111111111111"
  holders     = "# shellcheck shell=sh\n"
  preflight   = "#!/bin/sh\n"
  models = {
    a = {
      argv      = ["llama-server"]
      files     = []
      intent    = { cache_ram_mib = 2048, group = "main" }
      predicted = { host = { weights = 104857600, context = 0, compute = 1, projector = 0 } }
    }
    b = {
      argv      = ["llama-server"]
      files     = []
      intent    = { cache_ram_mib = 1024, group = "main" }
      predicted = { host = { weights = 524288000, context = 0, compute = 0, projector = 0 } }
    }
    c = {
      argv      = ["llama-server"]
      files     = []
      intent    = { cache_ram_mib = 0, group = "eyes" }
      predicted = { host = { weights = 1048576, context = 1048576, compute = 1048576, projector = 1048576 } }
    }
  }
}

run "a_group_takes_what_its_largest_takes" {
  command = plan

  # main: a 768 + 101 + 2048 = 2917, b 768 + 500 + 1024 = 2292; eyes: c 768 + 4; llama-swap 1024; guard 256 + 5 * 64, Caddy 256.
  assert {
    condition     = output.memory_mib.limit == 1024 + 2917 + 772 + 576 + 256
    error_message = "The limit must hold the largest model of each group, caches of prompts included."
  }

  # Without caches b is the largest of its group.
  assert {
    condition     = output.memory_mib.request == 1024 + 1268 + 772 + 64 + 64
    error_message = "What is asked for must be what is taken for certain."
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].resources[0].limits.memory == "4713Mi" && kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].resources[0].requests.memory == "3064Mi"
    error_message = "The container must have these figures."
  }
}

run "models_that_run_together_are_in_the_limit_and_the_one_that_runs_in_any_case_in_the_request" {
  command = plan

  variables {
    together = { main = [["a", "b"]], eyes = [["c"]] }
  }

  assert {
    condition     = output.memory_mib.limit == 1024 + 2917 + 2292 + 772 + 576 + 256 && output.memory_mib.request == 1024 + 1268 + 772 + 64 + 64
    error_message = "The limit must hold both models of main."
  }

  assert {
    condition     = local.engines == 3 && local.tmp_mib == 256 + 3 * 64
    error_message = "Three engines write to the node's disk."
  }
}

run "more_requests_at_a_time_may_hold_more_bodies" {
  command = plan

  variables {
    concurrency = 50
  }

  assert {
    condition     = output.memory_mib.limit == run.a_group_takes_what_its_largest_takes.memory_mib.limit + 4 * 1024 && output.memory_mib.request == run.a_group_takes_what_its_largest_takes.memory_mib.request
    error_message = "Bodies are only there while requests are: the limit must grow, and not what is asked for."
  }
}

run "fewer_requests_take_no_memory_from_llama_swap" {
  command = plan

  variables {
    concurrency = 1
  }

  assert {
    condition     = output.memory_mib == run.a_group_takes_what_its_largest_takes.memory_mib
    error_message = "The figure is also that of llama-swap itself."
  }
}

run "the_disk_holds_tmp_and_the_log" {
  command = plan

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].resources[0].limits["ephemeral-storage"] == "512Mi" && one([for volume in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].volume : volume.empty_dir[0].size_limit if volume.name == "tmp"]) == "384Mi"
    error_message = "/tmp must hold CUDA's cache and 64 MiB for each of the two models that run at a time; with the log 128 more."
  }
}

run "where_the_engine_could_not_predict_all_of_a_model_counts" {
  command = plan

  variables {
    models = { a = {
      argv      = ["llama-server"]
      files     = [{ size = 3145728 }, { size = 1048576 }]
      intent    = { cache_ram_mib = 0, group = "main" }
      predicted = { host = null }
    } }
  }

  assert {
    condition     = output.memory_mib.limit == 1024 + 768 + 4 + 576 + 256
    error_message = "Unknown must not mean nothing."
  }
}

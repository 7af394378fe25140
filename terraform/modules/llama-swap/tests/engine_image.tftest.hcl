# The engine in an image of its own, and llama-swap copied beside it.  What copy.sh does is shown by tools/tests/unit/test_pod_scripts.py.

mock_provider "kubernetes" {}

variables {
  api_key_env  = "CORRAL_SWAP_KEY"
  caddy        = "{\"admin\": {}}"
  guard        = "{\"version\": 1}"
  door_image   = "caddy:2.11-alpine@sha256:3333333333333333333333333333333333333333333333333333333333333333"
  engine_image = "ghcr.io/ggml-org/llama.cpp:server-cuda-b11549@sha256:4444444444444444444444444444444444444444444444444444444444444444"
  guard_image  = "python:3.13-slim@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  namespace    = "llama-cpp"
  claim        = "models"
  config       = "models: {a: {}}"
  image        = "ghcr.io/mostlygeek/llama-swap:v252-cuda-b10775-non-root@sha256:1111111111111111111111111111111111111111111111111111111111111111"
  holders      = "# shellcheck shell=sh\n"
  preflight    = "#!/bin/sh\n"
  models = { a = {
    argv      = ["llama-server"]
    files     = []
    intent    = { cache_ram_mib = 2048, group = "main" }
    predicted = { host = { weights = 104857600, context = 0, compute = 1, projector = 0 } }
  } }
}

run "the_engines_image_runs_and_llama_swap_comes_from_its_own" {
  command = plan

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].image == var.engine_image && kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].name == "llama-swap"
    error_message = "llama-server must be the one of the engine's image."
  }

  assert {
    condition     = [for one in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].init_container : one.name] == ["guard", "door", "copy-llama-swap"] && kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].init_container[2].image == var.image
    error_message = "The program must come from llama-swap's image."
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].init_container[2].command == tolist(["sh", "-c", file("copy.sh"), "copy.sh", "/opt/llama-swap", "/app"])
    error_message = "The script must get the volume, and the folder of the public image."
  }
}

run "the_copy_is_only_read_by_the_engines_container_and_bounded" {
  command = plan

  assert {
    condition     = [for mount in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].volume_mount : "${mount.mount_path} ${mount.read_only}" if mount.name == "programs"] == ["/opt/llama-swap true"]
    error_message = "What serves requests must not be able to change its program."
  }

  assert {
    condition     = [for volume in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].volume : volume.empty_dir[0].size_limit if volume.name == "programs"] == ["128Mi"]
    error_message = "An image with a huge program must not fill the node's disk."
  }
}

run "the_engine_is_found_where_llama_cpps_image_has_it_and_a_foreign_image_ends_with_one_line" {
  command = plan

  assert {
    condition     = strcontains(kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].command[2], " && export PATH=\"$PATH:/app\" && { command -v llama-server ")
    error_message = "llama.cpp's image does not have /app on PATH."
  }

  assert {
    condition     = endswith(kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].command[2], " && exec /opt/llama-swap/llama-swap -config /etc/llama-swap/config.yaml -listen 127.0.0.1:8082")
    error_message = "llama-swap must be the one that was copied, and process 1, which receives the signal."
  }
}

run "the_node_keeps_room_for_the_copy" {
  command = plan

  # Without it: 256 for CUDA's cache, 64 for the one group, 128 for the log.
  assert {
    condition     = [for of in ["requests", "limits"] : kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].resources[0][of]["ephemeral-storage"]] == ["576Mi", "576Mi"]
    error_message = "A volume counts for the pod, so that its containers must request it."
  }

  assert {
    condition     = [for of in ["requests", "limits"] : kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].init_container[2].resources[0][of]["ephemeral-storage"]] == ["128Mi", "128Mi"]
    error_message = "The copy itself must be permitted."
  }

  # llama-swap 1024, a 768 + 101 and with its cache 2048 more; guard 64 and 256 + 5 * 64, Caddy 64 and 256.
  assert {
    condition     = output.memory_mib == { request = 1024 + 869 + 64 + 64, limit = 1024 + 2917 + 576 + 256 }
    error_message = "What has ended takes no memory beside the server."
  }
}

run "it_is_as_restricted_as_the_rest" {
  command = plan

  assert {
    condition = alltrue([for container in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].init_container : (
      container.security_context[0].read_only_root_filesystem && container.security_context[0].run_as_non_root && !container.security_context[0].allow_privilege_escalation
      && container.security_context[0].capabilities[0].drop == tolist(["ALL"])
      && alltrue([for name in ["cpu", "memory", "ephemeral-storage"] : can(container.resources[0].limits[name]) && can(container.resources[0].requests[name])])
    )])
    error_message = "The container must be locked down, and have a limit on everything."
  }
}

run "an_engines_image_without_digest_is_refused" {
  command = plan

  variables {
    engine_image = "ghcr.io/ggml-org/llama.cpp:server-cuda-b11549"
  }

  expect_failures = [var.engine_image]
}

# A pod of another form would be another pod: every server would restart by an update of corral.
run "without_one_the_pod_is_as_it_was" {
  command = plan

  variables {
    engine_image = null
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].image == var.image && [for one in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].init_container : one.name] == ["guard", "door"]
    error_message = "The image of llama-swap has the engine."
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].command == tolist(["sh", "-c", "ulimit -c 0 && CORRAL_SWAP_KEY=$(cat /run/keys/internal) && export CORRAL_SWAP_KEY && exec llama-swap -config /etc/llama-swap/config.yaml -listen 127.0.0.1:8082"])
    error_message = "The command must be the same, byte for byte."
  }

  assert {
    condition     = [for volume in kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].volume : volume.name] == ["config", "models", "door", "guard", "guard-keys", "llama-swap-key", "door-tmp", "tmp"] && length(kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].volume_mount) == 4
    error_message = "Nothing more must be mounted."
  }

  assert {
    condition     = kubernetes_deployment_v1.llama_swap.spec[0].template[0].spec[0].container[0].resources[0].limits["ephemeral-storage"] == "448Mi"
    error_message = "Nothing more must be requested."
  }
}

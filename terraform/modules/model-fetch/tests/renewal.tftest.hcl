# There is a new Job when, and only when, it would bring other files, in another way, or elsewhere.  Every run would give a new Job its own
# name as id; the one that is kept keeps that of the first run.

mock_provider "kubernetes" {}

variables {
  namespace = "llama-cpp"
  claim     = "models-1a2b3c4d"
  image     = "python:3.13-slim@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  node      = "k8s-node1"
  models = { chat = {
    repo     = "example/chat-GGUF"
    revision = "0123456789abcdef0123456789abcdef01234567"
    argv     = ["llama-server", "-c", "4096"]
    files    = [{ path = "chat.gguf", role = "model", size = 1024, sha256 = "bb" }]
  } }
}

run "the_first" {
  override_resource {
    target = kubernetes_job_v1.download_models
    values = { id = "first" }
  }

  assert {
    condition     = kubernetes_job_v1.download_models.id == "first"
    error_message = "There must be a Job."
  }
}

run "nothing_has_changed" {
  override_resource {
    target = kubernetes_job_v1.download_models
    values = { id = "again" }
  }

  assert {
    condition     = kubernetes_job_v1.download_models.id == "first"
    error_message = "The same files must be the same Job."
  }
}

run "other_arguments_are_the_same_files" {
  override_resource {
    target = kubernetes_job_v1.download_models
    values = { id = "arguments" }
  }

  variables {
    models = { chat = {
      repo     = "example/chat-GGUF"
      revision = "0123456789abcdef0123456789abcdef01234567"
      argv     = ["llama-server", "-c", "8192"]
      files    = [{ path = "chat.gguf", role = "model", size = 1024, sha256 = "bb" }]
    } }
  }

  assert {
    condition     = kubernetes_job_v1.download_models.id == "first"
    error_message = "A change of arguments must not be a new Job."
  }
}

run "another_image_hub_or_token_brings_the_same_files" {
  override_resource {
    target = kubernetes_job_v1.download_models
    values = { id = "image" }
  }

  variables {
    image           = "python:3.14-slim@sha256:3333333333333333333333333333333333333333333333333333333333333333"
    hub             = "https://hub.example.org"
    hf_token_secret = "hf"
  }

  assert {
    condition     = kubernetes_job_v1.download_models.id == "first"
    error_message = "What is there need not be fetched in another way."
  }

  assert {
    condition     = startswith(kubernetes_job_v1.download_models.spec[0].template[0].spec[0].init_container[0].image, "python:3.13-slim@")
    error_message = "A Job that is done cannot be changed: a change that were let through would be a new one."
  }
}

run "another_file_is_a_new_job" {
  override_resource {
    target = kubernetes_job_v1.download_models
    values = { id = "file" }
  }

  variables {
    image = "python:3.14-slim@sha256:3333333333333333333333333333333333333333333333333333333333333333"
    models = { chat = {
      repo     = "example/chat-GGUF"
      revision = "0123456789abcdef0123456789abcdef01234567"
      argv     = ["llama-server", "-c", "4096"]
      files    = [{ path = "chat.gguf", role = "model", size = 1025, sha256 = "cc" }]
    } }
  }

  assert {
    condition     = kubernetes_job_v1.download_models.id == "file"
    error_message = "Other files must be a new Job."
  }

  assert {
    condition     = startswith(kubernetes_job_v1.download_models.spec[0].template[0].spec[0].init_container[0].image, "python:3.14-slim@")
    error_message = "A new Job must have the present configuration, also in what is ignored while it stays."
  }
}

run "another_store_is_a_new_job" {
  override_resource {
    target = kubernetes_job_v1.download_models
    values = { id = "store" }
  }

  variables {
    claim = "models-5e6f7a8b"
    models = { chat = {
      repo     = "example/chat-GGUF"
      revision = "0123456789abcdef0123456789abcdef01234567"
      argv     = ["llama-server", "-c", "4096"]
      files    = [{ path = "chat.gguf", role = "model", size = 1025, sha256 = "cc" }]
    } }
  }

  assert {
    condition     = kubernetes_job_v1.download_models.id == "store"
    error_message = "Another store is empty."
  }
}

run "another_agent_is_a_new_job" {
  override_resource {
    target = kubernetes_job_v1.download_models
    values = { id = "agent" }
  }

  variables {
    agent = "tests/agent"
    claim = "models-5e6f7a8b"
    models = { chat = {
      repo     = "example/chat-GGUF"
      revision = "0123456789abcdef0123456789abcdef01234567"
      argv     = ["llama-server", "-c", "4096"]
      files    = [{ path = "chat.gguf", role = "model", size = 1025, sha256 = "cc" }]
    } }
  }

  assert {
    condition     = kubernetes_job_v1.download_models.id == "agent"
    error_message = "A change of the agent's files must be a new Job."
  }

  assert {
    condition     = keys(module.agent.data) == tolist(["__main__.py"])
    error_message = "An editor's file, whose name begins with a dot, must not be mounted."
  }
}

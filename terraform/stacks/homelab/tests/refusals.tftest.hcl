# What the stack itself refuses, and that the modules' refusals reach it.  The siblings that pass are in placing.tftest.hcl.

mock_provider "kubernetes" {}

variables {
  catalog = "tests/catalogs/good"
  store   = { nfs = { server = "nas", path = "/export/models" } }
}

run "a_catalog_without_the_servers_image_is_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/no-server-image"
  }

  expect_failures = [output.images]

  assert {
    condition     = !local.images_are_named
    error_message = "not by the rule images_are_named"
  }
}

run "a_catalog_without_an_image_of_the_door_is_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/no-door"
  }

  expect_failures = [output.images]

  assert {
    condition     = !local.images_are_named
    error_message = "not by the rule images_are_named"
  }
}

run "an_image_of_ones_own_needs_a_digest_too" {
  command = plan

  variables {
    image = "example/llama-swap:v1"
  }

  expect_failures = [var.image]
}

run "an_image_of_ones_own_beside_the_engines_own_is_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/engine-image"
    image   = "example/llama-swap:v1-${jsondecode(file("tests/catalogs/good/lock.json")).engine.predicts}@sha256:3333333333333333333333333333333333333333333333333333333333333333"
  }

  expect_failures = [output.images]

  assert {
    condition     = !local.one_image_has_the_engine
    error_message = "not by the rule one_image_has_the_engine"
  }
}

run "two_cards_in_one_node_are_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/one-node"
  }

  expect_failures = [output.node]

  assert {
    condition     = !local.card_has_a_node_of_its_own
    error_message = "not by the rule card_has_a_node_of_its_own"
  }
}

run "a_card_whose_name_cannot_be_an_objects_is_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/dotted-card"
  }

  expect_failures = [output.node]

  assert {
    condition     = !local.cards_can_name_objects
    error_message = "not by the rule cards_can_name_objects"
  }
}

run "a_local_store_cannot_serve_two_nodes" {
  command = plan

  variables {
    catalog = "tests/catalogs/two-cards"
    store   = { local = { node = "k8s-node1", path = "/srv/models" } }
  }

  expect_failures = [output.node]

  assert {
    condition     = !local.store_is_on_the_cards_node
    error_message = "not by the rule store_is_on_the_cards_node"
  }
}

run "a_volume_for_one_node_cannot_serve_two" {
  command = plan

  variables {
    catalog = "tests/catalogs/two-cards"
    store   = { storage_class = "longhorn", size = "10Gi" }
  }

  expect_failures = [output.node]

  assert {
    condition     = !local.store_is_on_the_cards_node
    error_message = "not by the rule store_is_on_the_cards_node"
  }
}

run "a_card_without_a_node_is_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/no-node"
  }

  expect_failures = [output.node]

  assert {
    condition     = !local.card_names_its_node
    error_message = "not by the rule card_names_its_node"
  }
}

run "a_card_that_yields_without_an_exporter_is_refused" {
  command = plan

  variables {
    catalog = "tests/catalogs/yields"
  }

  expect_failures = [output.node]

  assert {
    condition     = !local.yielding_card_has_its_exporter
    error_message = "not by the rule yielding_card_has_its_exporter"
  }
}

run "a_local_store_on_another_node_is_refused" {
  command = plan

  variables {
    store = { local = { node = "k8s-node2", path = "/srv/models" } }
  }

  expect_failures = [output.node]

  assert {
    condition     = !local.store_is_on_the_cards_node
    error_message = "not by the rule store_is_on_the_cards_node"
  }
}

run "a_namespace_cannot_be_made_around_an_existing_claim" {
  command = plan

  variables {
    store            = { claim = "models" }
    create_namespace = true
  }

  expect_failures = [var.create_namespace]
}

run "a_namespace_of_kubernetes_is_refused" {
  command = plan

  variables {
    namespace = "kube-system"
  }

  expect_failures = [var.namespace]
}

run "the_default_namespace_is_refused" {
  command = plan

  variables {
    namespace = "default"
  }

  expect_failures = [var.namespace]
}

run "a_pull_secret_that_cannot_exist_is_refused" {
  command = plan

  variables {
    image_pull_secrets = ["registry", "{\"auths\": {}}"]
  }

  expect_failures = [var.image_pull_secrets]
}

run "a_pull_secret_that_is_named_twice_is_refused" {
  command = plan

  variables {
    image_pull_secrets = ["registry", "registry"]
  }

  expect_failures = [var.image_pull_secrets]
}

run "a_resource_without_a_vendor_is_refused" {
  command = plan

  variables {
    gpu_resource = "gpu"
  }

  expect_failures = [var.gpu_resource]
}

run "a_resource_of_kubernetes_itself_is_refused" {
  command = plan

  variables {
    gpu_resource = "node.kubernetes.io/gpu"
  }

  expect_failures = [var.gpu_resource]
}

run "a_resource_with_an_amount_is_refused" {
  command = plan

  variables {
    gpu_resource = "nvidia.com/gpu=1"
  }

  expect_failures = [var.gpu_resource]
}

run "a_label_of_corral_is_refused" {
  command = plan

  variables {
    labels = { "app.kubernetes.io/part-of" = "another" }
  }

  expect_failures = [var.labels]
}

run "a_label_of_pod_security_is_refused" {
  command = plan

  variables {
    labels = { "pod-security.kubernetes.io/enforce" = "privileged" }
  }

  expect_failures = [var.labels]
}

run "the_name_of_a_namespace_as_a_label_is_refused" {
  command = plan

  variables {
    labels = { "kubernetes.io/metadata.name" = "another" }
  }

  expect_failures = [var.labels]
}

run "a_label_of_a_controller_is_refused" {
  command = plan

  variables {
    labels = { pod-template-hash = "1" }
  }

  expect_failures = [var.labels]
}

run "a_label_with_a_sentence_is_refused" {
  command = plan

  variables {
    labels = { team = "the team of home" }
  }

  expect_failures = [var.labels]
}

run "an_annotation_of_corral_is_refused" {
  command = plan

  variables {
    annotations = { "corral/image-from" = "x" }
  }

  expect_failures = [var.annotations]
}

run "an_annotation_of_kubectl_is_refused" {
  command = plan

  variables {
    annotations = { "kubectl.kubernetes.io/restartedAt" = "x" }
  }

  expect_failures = [var.annotations]
}

run "an_annotation_without_a_name_is_refused" {
  command = plan

  variables {
    annotations = { "example.org/" = "x" }
  }

  expect_failures = [var.annotations]
}

run "a_toleration_that_exists_and_has_a_value_is_refused" {
  command = plan

  variables {
    tolerations = [{ key = "dedicated", operator = "Exists", value = "gpu" }]
  }

  expect_failures = [var.tolerations]
}

run "a_toleration_of_no_key_is_refused" {
  command = plan

  variables {
    tolerations = [{ value = "gpu" }]
  }

  expect_failures = [var.tolerations]
}

run "a_toleration_of_an_unknown_effect_is_refused" {
  command = plan

  variables {
    tolerations = [{ key = "dedicated", effect = "noSchedule" }]
  }

  expect_failures = [var.tolerations]
}

run "a_toleration_with_seconds_and_no_end_is_refused" {
  command = plan

  variables {
    tolerations = [{ key = "dedicated", effect = "NoSchedule", seconds = 60 }]
  }

  expect_failures = [var.tolerations]
}

run "two_kubeconfigs_in_the_variable_are_refused" {
  command = plan

  variables {
    kubeconfig = "/home/a:/home/b"
  }

  expect_failures = [var.kubeconfig]
}

run "an_empty_kubeconfig_is_refused" {
  command = plan

  variables {
    kubeconfig = ""
  }

  expect_failures = [var.kubeconfig]
}

run "a_toleration_that_is_null_is_refused" {
  command = plan

  variables {
    tolerations = [null]
  }

  expect_failures = [var.tolerations]
}

run "a_toleration_of_an_empty_effect_is_refused" {
  command = plan

  variables {
    tolerations = [{ key = "dedicated", effect = "" }]
  }

  expect_failures = [var.tolerations]
}

run "a_toleration_of_an_empty_key_is_refused" {
  command = plan

  variables {
    tolerations = [{ key = "", operator = "Equal", value = "gpu" }]
  }

  expect_failures = [var.tolerations]
}

run "a_resource_that_kubernetes_keeps_for_requests_is_refused" {
  command = plan

  variables {
    gpu_resource = "requests.nvidia.com/gpu"
  }

  expect_failures = [var.gpu_resource]
}

run "an_annotation_of_kubernetes_itself_is_refused" {
  command = plan

  variables {
    annotations = { "kubernetes.io/psp" = "x" }
  }

  expect_failures = [var.annotations]
}

run "an_annotation_that_chooses_a_storage_class_is_refused" {
  command = plan

  variables {
    annotations = { "volume.beta.kubernetes.io/storage-class" = "x" }
  }

  expect_failures = [var.annotations]
}

run "an_empty_context_is_refused" {
  command = plan

  variables {
    kube_context = ""
  }

  expect_failures = [var.kube_context]
}

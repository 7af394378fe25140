# What is refused.  The siblings that pass are in places.tftest.hcl.

mock_provider "kubernetes" {}

variables {
  namespace = "llama-cpp"
}

run "two_places_are_refused" {
  command = plan

  variables {
    store = { claim = "weights", local = { node = "k8s-node1", path = "/srv/models" } }
  }

  expect_failures = [var.store]
}

run "no_place_is_refused" {
  command = plan

  variables {
    store = {}
  }

  expect_failures = [var.store]
}

run "a_relative_folder_is_refused" {
  command = plan

  variables {
    store = { local = { node = "k8s-node1", path = "srv/models" } }
  }

  expect_failures = [var.store]
}

run "a_relative_export_is_refused" {
  command = plan

  variables {
    store = { nfs = { server = "nas", path = "models" } }
  }

  expect_failures = [var.store]
}

run "an_export_without_a_server_is_refused" {
  command = plan

  variables {
    store = { nfs = { server = " ", path = "/models" } }
  }

  expect_failures = [var.store]
}

run "a_folder_of_no_node_is_refused" {
  command = plan

  variables {
    store = { local = { node = "", path = "/srv/models" } }
  }

  expect_failures = [var.store]
}

run "two_mount_options_in_one_are_refused" {
  command = plan

  variables {
    store = { nfs = { server = "nas", path = "/models", mount_options = ["hard,noatime"] } }
  }

  expect_failures = [var.store]
}

run "a_claim_that_cannot_exist_is_refused" {
  command = plan

  variables {
    store = { claim = "My Models" }
  }

  expect_failures = [var.store]
}

run "a_size_without_unit_is_refused" {
  command = plan

  variables {
    store = { nfs = { server = "nas", path = "/models" } }
    size  = "30"
  }

  expect_failures = [var.size]
}

run "a_name_that_kubernetes_does_not_take_is_refused" {
  command = plan

  variables {
    store = { nfs = { server = "nas", path = "/models" } }
    name  = "Models"
  }

  expect_failures = [var.name]
}

run "a_storage_class_without_a_size_is_refused" {
  command = plan

  variables {
    store = { storage_class = "longhorn" }
  }

  expect_failures = [var.store]
}

run "a_storage_class_with_a_size_without_unit_is_refused" {
  command = plan

  variables {
    store = { storage_class = "longhorn", size = "200" }
  }

  expect_failures = [var.store]
}

run "a_size_of_an_export_is_refused" {
  command = plan

  variables {
    store = { nfs = { server = "nas", path = "/models" }, size = "200Gi" }
  }

  expect_failures = [var.store]
}

run "an_access_mode_of_a_claim_is_refused" {
  command = plan

  variables {
    store = { claim = "weights", access_mode = "ReadWriteMany" }
  }

  expect_failures = [var.store]
}

run "an_access_mode_that_the_download_cannot_write_with_is_refused" {
  command = plan

  variables {
    store = { storage_class = "longhorn", size = "200Gi", access_mode = "ReadOnlyMany" }
  }

  expect_failures = [var.store]
}

run "a_storage_class_beside_a_claim_is_refused" {
  command = plan

  variables {
    store = { storage_class = "longhorn", size = "200Gi", claim = "weights" }
  }

  expect_failures = [var.store]
}

run "a_storage_class_that_cannot_exist_is_refused" {
  command = plan

  variables {
    store = { storage_class = "Fast Disks", size = "200Gi" }
  }

  expect_failures = [var.store]
}

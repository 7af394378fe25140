# Each kind of place.

mock_provider "kubernetes" {}

variables {
  namespace = "llama-cpp"
}

run "an_export_is_mounted_with_the_options_that_suit_models" {
  command = plan

  variables {
    store = { nfs = { server = "nas.home.arpa", path = "/export/models" } }
  }

  assert {
    condition     = [for nfs in kubernetes_persistent_volume_v1.models[0].spec[0].persistent_volume_source[0].nfs : [nfs.server, nfs.path, coalesce(nfs.read_only, false)]] == [["nas.home.arpa", "/export/models", false]]
    error_message = "The volume must be the export, and writable: the download writes to it."
  }

  assert {
    condition     = kubernetes_persistent_volume_v1.models[0].spec[0].mount_options == toset(["hard", "nconnect=8", "rsize=1048576", "wsize=1048576", "noatime"])
    error_message = "The default mount options must be those for large files that are read whole."
  }

  assert {
    condition     = output.node == null
    error_message = "Every node reaches an export."
  }
}

run "a_claim_is_not_waited_for" {
  command = plan

  variables {
    store = { nfs = { server = "nas.home.arpa", path = "/export/models" } }
  }

  assert {
    condition     = !kubernetes_persistent_volume_claim_v1.models[0].wait_until_bound
    error_message = "A claim that timed out would be replaced by one of the same name, for ever in vain."
  }
}

run "mount_options_can_be_ones_own" {
  command = plan

  variables {
    store = { nfs = { server = "nas", path = "/m", mount_options = ["nfsvers=4.2"] } }
  }

  assert {
    condition     = kubernetes_persistent_volume_v1.models[0].spec[0].mount_options == toset(["nfsvers=4.2"])
    error_message = "The options given must stand alone."
  }
}

run "a_folder_ties_the_volume_to_its_node" {
  command = plan

  variables {
    store = { local = { node = "k8s-node1", path = "/srv/models" } }
  }

  assert {
    condition     = kubernetes_persistent_volume_v1.models[0].spec[0].persistent_volume_source[0].local[0].path == "/srv/models"
    error_message = "The volume must be the folder."
  }

  assert {
    condition = one([
      for term in kubernetes_persistent_volume_v1.models[0].spec[0].node_affinity[0].required[0].node_selector_term[0].match_expressions : term.values if term.key == "kubernetes.io/hostname" && term.operator == "In"
    ]) == toset(["k8s-node1"])
    error_message = "Kubernetes refuses a local volume that is not tied to a node."
  }

  assert {
    condition     = output.node == "k8s-node1"
    error_message = "The stack compares the node with that of the card."
  }
}

run "a_claim_that_exists_is_used_as_it_is" {
  command = plan

  variables {
    store = { claim = "weights" }
  }

  assert {
    condition     = length(kubernetes_persistent_volume_v1.models) == 0 && length(kubernetes_persistent_volume_claim_v1.models) == 0
    error_message = "Nothing may be made beside it."
  }

  assert {
    condition     = output.claim == "weights"
    error_message = "Pods must mount the claim that was named."
  }
}

run "the_models_outlive_the_volume" {
  command = plan

  variables {
    store = { local = { node = "k8s-node1", path = "/srv/models" } }
  }

  assert {
    condition     = kubernetes_persistent_volume_v1.models[0].spec[0].persistent_volume_reclaim_policy == "Retain"
    error_message = "Removing the stack must not remove the models."
  }
}

run "volume_and_claim_belong_only_to_each_other" {
  command = plan

  variables {
    store = { nfs = { server = "nas", path = "/m" } }
  }

  assert {
    condition     = kubernetes_persistent_volume_v1.models[0].spec[0].claim_ref[0] == { namespace = "llama-cpp", name = output.claim }
    error_message = "No other claim may take the volume."
  }

  assert {
    condition     = kubernetes_persistent_volume_claim_v1.models[0].spec[0].volume_name == kubernetes_persistent_volume_v1.models[0].metadata[0].name
    error_message = "The claim must take no other volume."
  }

  assert {
    condition     = kubernetes_persistent_volume_claim_v1.models[0].spec[0].storage_class_name == "corral" && kubernetes_persistent_volume_v1.models[0].spec[0].storage_class_name == "corral"
    error_message = "A claim without a class gets the cluster's default class, and then never this volume."
  }

  assert {
    condition     = startswith(kubernetes_persistent_volume_v1.models[0].metadata[0].name, "llama-cpp-models-")
    error_message = "Volumes belong to the whole cluster: their names must carry the namespace."
  }
}

run "another_place" {
  command = plan

  variables {
    store = { nfs = { server = "nas", path = "/other" } }
  }

  assert {
    condition     = output.claim != run.volume_and_claim_belong_only_to_each_other.claim
    error_message = "Another place must be another claim: pods hold the old one until they have moved."
  }
}

run "a_storage_class_makes_the_volume" {
  command = plan

  variables {
    store = { storage_class = "longhorn", size = "200Gi" }
  }

  assert {
    condition     = length(kubernetes_persistent_volume_v1.models) == 0 && length(kubernetes_persistent_volume_claim_v1.models) == 0
    error_message = "The class makes the volume, and one claim is enough."
  }

  assert {
    condition = [for claim in kubernetes_persistent_volume_claim_v1.provisioned[0].spec : [
      claim.storage_class_name, tolist(claim.access_modes), claim.resources[0].requests
    ]] == [["longhorn", tolist(["ReadWriteOnce"]), tomap({ storage = "200Gi" })]]
    error_message = "The claim must name the class and the size; all pods are on one node."
  }

  assert {
    condition     = !kubernetes_persistent_volume_claim_v1.provisioned[0].wait_until_bound
    error_message = "A class that waits for the first pod would be waited for in vain: that pod comes after the claim."
  }

  assert {
    condition     = output.claim == kubernetes_persistent_volume_claim_v1.provisioned[0].metadata[0].name && startswith(output.claim, "models-") && output.node == null
    error_message = "Pods must mount it, and no node is known."
  }
}

run "a_larger_size_is_the_same_claim" {
  command = plan

  variables {
    store = { storage_class = "longhorn", size = "300Gi" }
  }

  assert {
    condition     = output.claim == run.a_storage_class_makes_the_volume.claim
    error_message = "A driver's volume can grow; another claim would have another volume."
  }
}

run "another_class_or_mode_is_another_claim" {
  command = plan

  variables {
    store = { storage_class = "longhorn", size = "200Gi", access_mode = "ReadWriteMany" }
  }

  assert {
    condition     = kubernetes_persistent_volume_claim_v1.provisioned[0].spec[0].access_modes == toset(["ReadWriteMany"])
    error_message = "The operator's mode must be the claim's."
  }

  assert {
    condition     = output.claim != run.a_storage_class_makes_the_volume.claim
    error_message = "Neither can be changed of a claim that exists: pods hold the old one until they have moved."
  }
}

run "volume_and_claim_have_the_labels_and_annotations_of_the_cluster" {
  command = plan

  variables {
    store       = { nfs = { server = "nas", path = "/m" } }
    conventions = { labels = { team = "home" }, annotations = { "example.org/owner" = "ops" } }
  }

  assert {
    condition = alltrue([
      for metadata in [kubernetes_persistent_volume_v1.models[0].metadata[0], kubernetes_persistent_volume_claim_v1.models[0].metadata[0]] :
      metadata.labels.team == "home" && metadata.labels["app.kubernetes.io/part-of"] == "corral" && metadata.annotations == tomap({ "example.org/owner" = "ops" })
    ])
    error_message = "All objects must have them, and the module's own labels."
  }
}

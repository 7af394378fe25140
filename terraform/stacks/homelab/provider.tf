provider "kubernetes" {
  config_path    = var.kubeconfig # null: the environment, which corral sets (tools/corral/terraform/homelab.py)
  config_context = var.kube_context

  # Labels and annotations that others put on an object are theirs: Argo's, Kustomize's, those of kubectl label.  The keys of this stack
  # are planned all the same.
  ignore_annotations = [".*"]
  ignore_labels      = [".*"]
}

# What the cluster of an operator asks of all objects and pods, beside what each module gives its own.

locals {
  conventions = {
    labels             = var.labels
    annotations        = var.annotations
    gpu_resource       = var.gpu_resource
    image_pull_secrets = var.image_pull_secrets

    # The card's node may be reserved by the name of the resource, or by the usual one of its vendor.
    tolerations = concat(
      [for key in distinct([var.gpu_resource, "${split("/", var.gpu_resource)[0]}/gpu"]) : { key = key, operator = "Exists" }],
      var.tolerations,
    )
  }

  # Without a variable in them, because variables are validated with them.
  reserved_annotations = "corral|((kubectl|deployment|batch|pv|volume|volume\\.beta|storage)\\.)?kubernetes\\.io"
  reserved_labels = join("|", [
    "app\\.kubernetes\\.io/(name|instance|component|part-of|managed-by)", "((pod-security|batch)\\.)?kubernetes\\.io/.*",
    "corral/(card|model)", "pod-template-hash", "pod-template-generation", "controller-revision-hash", "controller-uid", "job-name",
  ])

  # Of the objects of the stack itself.
  _labels      = merge(var.labels, { "app.kubernetes.io/part-of" = "corral", "app.kubernetes.io/managed-by" = "terraform" })
  _annotations = length(var.annotations) == 0 ? null : var.annotations
}

# What the cluster of an operator asks of all pods, beside what each module gives its own.

locals {
  conventions = {
    gpu_resource       = var.gpu_resource
    image_pull_secrets = var.image_pull_secrets
  }
}

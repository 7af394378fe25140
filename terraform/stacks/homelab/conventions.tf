# What the cluster of an operator asks of all pods, beside what each module gives its own.

locals {
  conventions = {
    image_pull_secrets = var.image_pull_secrets
  }
}

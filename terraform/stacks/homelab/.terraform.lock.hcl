# This file is maintained automatically by "terraform init".
# Manual edits may be lost in future updates.

provider "registry.terraform.io/hashicorp/kubernetes" {
  version     = "3.2.1"
  constraints = ">= 3.0.0, < 4.0.0"
  hashes = [
    "h1:8LXnrTKoX2tRNrVbeZfh6XIHbroFKjaJUkcnPXA94dE=",
  ]
}

terraform {
  required_version = ">= 1.9"

  required_providers {
    kubernetes = {
      source  = "hashicorp/kubernetes"
      version = ">= 3.0, < 4"
    }
  }

  # The state is in this folder.  `make init BACKEND=pg` moves it into PostgreSQL, by an override file beside this one.
  backend "local" {}
}

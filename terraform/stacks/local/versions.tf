terraform {
  required_version = ">= 1.9"

  # `corral up` keeps the state in its own folder: terraform init -backend-config=path=…
  backend "local" {}
}

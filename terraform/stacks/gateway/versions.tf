terraform {
  required_version = ">= 1.9"

  # `corral` keeps the state in a temporary folder: terraform init -backend-config=path=…
  backend "local" {}
}

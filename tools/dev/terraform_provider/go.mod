// The Terraform provider hashicorp/kubernetes: this commit is its release 3.2.1 (dev/terraform_provider.py names it so).
module corral/terraform-provider

go 1.26.3

require github.com/hashicorp/terraform-provider-kubernetes v1.13.4-0.20260821094251-3a33fb6cc605

require golang.org/x/net v0.56.0 // indirect

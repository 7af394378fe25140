"""Running Terraform: any stack, the homelab's stack, and what a plan of it means in the words of the catalog."""

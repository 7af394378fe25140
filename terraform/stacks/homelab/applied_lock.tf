# The applied lock, kept in the state.  Terraform also writes outputs into the state after a failed apply; this resource changes only
# when all objects of the lock exist.

resource "terraform_data" "applied_lock" {
  input = module.catalog.lock

  depends_on = [module.llama_swap, module.gateway]
}

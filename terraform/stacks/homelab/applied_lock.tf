# The lock that is applied, kept in the state.  Terraform writes outputs into the state after an apply that failed, too; this resource
# changes only when everything that the lock leads to is there.

resource "terraform_data" "applied_lock" {
  input = module.catalog.lock

  depends_on = [module.llama_swap]
}

module "store_exporter" {
  source = "../../modules/store-exporter"
  count  = var.card_exporter == null ? 0 : 1

  namespace    = local.namespace
  claim        = module.model_store.claim
  conventions  = local.conventions
  image        = local.images.fetch
  node         = local.node
  program      = module.model_fetch.program
  scraped_from = var.card_exporter.scraped_from
  seal         = module.catalog.lock.seal

  # The store has a new lock's files when its models are served; before that, the previous lock is the one to compare it with.
  depends_on = [module.llama_swap]
}

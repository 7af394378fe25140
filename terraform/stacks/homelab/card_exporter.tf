module "card_exporter" {
  source = "../../modules/card-exporter"
  count  = var.card_exporter == null ? 0 : 1

  conventions          = local.conventions
  door                 = { port = module.llama_swap["first"].ports.door, host = "llama-swap.${local.namespace}.svc" }
  driver_pid_namespace = var.card_exporter.driver_pid_namespace
  engines              = { namespace = local.namespace, selector = "app.kubernetes.io/name=llama-swap" }
  image                = local.images.fetch
  namespace            = var.card_exporter.namespace
  nodes                = { for name, node in local.nodes : name => node if node != null }
  promises             = module.seating.promises
  runtime_class        = var.runtime_class
  alertmanager         = var.card_exporter.alertmanager
  records              = var.card_exporter.records
  scraped_from         = var.card_exporter.scraped_from
  seal                 = module.catalog.lock.seal
}

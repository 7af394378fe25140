module "alerts" {
  source = "../../modules/alerts"
  count  = var.card_exporter == null ? 0 : 1

  cards     = local._cards
  labels    = var.card_exporter.alerts.labels
  namespace = var.card_exporter.namespace
  runbooks  = var.card_exporter.alerts.runbooks
  seal      = module.catalog.lock.seal
  stores    = [local.namespace]
}

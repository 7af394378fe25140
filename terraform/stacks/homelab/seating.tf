module "seating" {
  source = "../../modules/seating"

  cards  = module.catalog.lock.cards
  models = module.catalog.lock.models
}

module "seating" {
  source = "../../modules/seating"

  cards  = module.catalog.cards
  models = module.catalog.models
}

module "seating" {
  source = "../../modules/seating"

  cards    = local.cards
  lock     = local.lock
  measured = local.measured
  models   = local.models
}

module "catalog" {
  source = "../../modules/catalog"

  path = var.catalog
}

# Empty where the lock is refused, also in a plan that evaluates no precondition (terraform plan -destroy).

output "cards" {
  description = "The cards that the lock names, by name, as lock.json has them."
  value       = { for name, card in try(local._document.cards, {}) : name => card if local._is_fresh }

  depends_on = [terraform_data.lock_is_fresh]
}

output "images" {
  description = "The images that the lock pins by digest, by name."
  value       = { for name, image in try(local._document.images, {}) : name => image if local._is_fresh }

  depends_on = [terraform_data.lock_is_fresh]
}

output "lock" {
  description = "The whole lock, decoded; null where it is refused."
  value       = local._is_fresh ? local._document : null

  depends_on = [terraform_data.lock_is_fresh]
}

output "models" {
  description = "The models that the lock names, by id, as lock.json has them."
  value       = { for id, model in try(local._document.models, {}) : id => model if local._is_fresh }

  depends_on = [terraform_data.lock_is_fresh]
}

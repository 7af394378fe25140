# Empty for a refused lock, even in a plan that evaluates no precondition (terraform plan -destroy).

output "cards" {
  description = "The cards of the lock, by name, as in lock.json."
  value       = { for name, card in try(local._document.cards, {}) : name => card if local._is_fresh }

  depends_on = [terraform_data.lock_is_fresh]
}

output "clients" {
  description = "The clients of the lock, by name: the models that each may use (null: all), and its requests at once."
  value       = { for name, client in try(local._document.clients, {}) : name => client if local._is_fresh }

  depends_on = [terraform_data.lock_is_fresh]
}

output "images" {
  description = "The images that the lock pins by digest, by name."
  value       = { for name, image in try(local._document.images, {}) : name => image if local._is_fresh }

  depends_on = [terraform_data.lock_is_fresh]
}

output "lock" {
  description = "The complete lock, decoded; null if it is refused."
  value       = local._is_fresh ? local._document : null

  depends_on = [terraform_data.lock_is_fresh]
}

output "models" {
  description = "The models of the lock, by id, as in lock.json."
  value       = { for id, model in try(local._document.models, {}) : id => model if local._is_fresh }

  depends_on = [terraform_data.lock_is_fresh]
}

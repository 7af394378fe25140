locals {
  app         = "llama-swap"
  name        = var.name
  copy        = "copy-llama-swap" # tools/corral/cluster/snapshot.py knows whose image it runs
  keys_secret = "corral-keys"     # tools/corral/cluster/keys.py writes it
  chosen      = "corral-adapters" # tools/corral/cluster/versions.py writes it, and it need not exist

  # Only Caddy's is open to other pods.
  ports = { door = 8080, guard = 8081, llama_swap = 8082 }

  # A key of this module comes last, and stays.
  # One label more where there are several cards.  The app's name alone means the pods of all of them.
  selector = merge({ "app.kubernetes.io/name" = local.app }, { for card in var.card[*] : "corral/card" => card })

  labels = merge(var.conventions.labels, local.selector, {
    "app.kubernetes.io/component"  = "server"
    "app.kubernetes.io/part-of"    = "corral"
    "app.kubernetes.io/managed-by" = "terraform"
  })

  annotations = length(var.conventions.annotations) == 0 ? null : var.conventions.annotations
}

# Out go names, https to public addresses, and the hub.  A hub redirects to addresses of a content network, which are not known beforehand:
# they cannot be pinned.  What is known is that a redirect, or a name that resolves to another address, must not lead into a private network.

locals {
  _private = {
    "0.0.0.0/0" = [
      "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16",
      "198.18.0.0/15", "224.0.0.0/3", # 169.254.169.254 is a cloud's metadata; from 224 on: multicast, reserved, broadcast
    ]
    "::/0" = ["::/96", "64:ff9b:1::/48", "fc00::/7", "fe80::/10", "ff00::/8"]
  }

  _hub_host = var.hub == null ? "huggingface.co" : lower(trim(try(regex("^https?://(\\[[^]]*\\]|[^:/]*)", var.hub)[0], "invalid.example"), "[]"))
  _hub_port = var.hub == null ? 443 : try(
    tonumber(regex("^https?://[^/]*:([0-9]+)(?:/|$)", var.hub)[0]),
    startswith(var.hub, "http://") ? 80 : 443,
  )

  # A network holds an address when both have the same first bits.  A name of one word, or below one of these, is never public.
  _hub_is_private_name = can(regex("(^[^.:]+|\\.(home\\.arpa|internal|lan|local|localdomain|localhost|svc))\\.?$", local._hub_host))
  _hub_is_private = local._hub_is_private_name || anytrue([
    for block in flatten(values(local._private)) : try(cidrhost("${local._hub_host}/${split("/", block)[1]}", 0) == cidrhost(block, 0), false)
  ])
  _hub_is_named = anytrue([
    for block in var.hub_cidrs : local._hub_is_private_name || try(cidrhost("${local._hub_host}/${split("/", block)[1]}", 0) == cidrhost(block, 0), false)
  ])

  private_hub_has_its_addresses = !local._hub_is_private || local._hub_is_named
}

resource "kubernetes_network_policy_v1" "download_models" {
  metadata {
    name        = local.name
    namespace   = var.namespace
    labels      = local.labels
    annotations = local.annotations
  }

  spec {
    policy_types = ["Ingress", "Egress"]

    pod_selector {
      match_labels = { "app.kubernetes.io/name" = local.name }
    }

    egress {
      ports {
        port     = "53"
        protocol = "UDP"
      }
      ports {
        port     = "53"
        protocol = "TCP"
      }
    }

    egress {
      dynamic "ports" {
        for_each = distinct(concat([443], length(var.hub_cidrs) == 0 ? [local._hub_port] : []))

        content {
          port     = tostring(ports.value)
          protocol = "TCP"
        }
      }

      dynamic "to" {
        for_each = local._private

        content {
          ip_block {
            cidr   = to.key
            except = to.value
          }
        }
      }
    }

    dynamic "egress" {
      for_each = length(var.hub_cidrs) == 0 ? [] : [local._hub_port] # a rule without `to` would permit every address

      content {
        ports {
          port     = tostring(egress.value)
          protocol = "TCP"
        }

        dynamic "to" {
          for_each = sort(distinct(var.hub_cidrs))

          content {
            ip_block {
              cidr = to.value
            }
          }
        }
      }
    }
  }
}

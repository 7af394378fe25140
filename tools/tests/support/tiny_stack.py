"""A stack without a provider that has the homelab's variables, requires an init, and takes as long as a test sets."""

from __future__ import annotations

from pathlib import Path

_VARIABLES = """
variable "catalog" {
  type = string
}
variable "kubeconfig" {
  type    = string
  default = null
}
variable "kube_context" {
  type    = string
  default = "home"
}
variable "namespace" {
  type    = string
  default = "llama-cpp"
}
variable "note" {
  type    = string
  default = "first"
}
variable "command" {
  type    = string
  default = "true"
}
"""
_MAIN = """
module "part" {
  source = "./part"
}

resource "terraform_data" "thing" {
  input            = var.note
  triggers_replace = var.note

  provisioner "local-exec" {
    command = var.command
  }
}

locals {
  lock_is_fresh = var.note != "broken"
}

output "note" {
  value = terraform_data.thing.output

  precondition {
    condition     = local.lock_is_fresh
    error_message = "Stale in lock.json: a. The intent changed after it was locked. Run: corral lock"
  }
}
"""


def write_stack(folder: Path, **variables: str) -> Path:
    """The stack in *folder*, with *variables* in its terraform.tfvars."""
    (folder / "part").mkdir(parents=True)
    (folder / "part" / "main.tf").write_text('output "x" {\n  value = 1\n}\n')
    (folder / "variables.tf").write_text(_VARIABLES, encoding="utf-8")
    (folder / "main.tf").write_text(_MAIN)
    set_variables(folder, **variables)
    return folder


def set_variables(folder: Path, **variables: str) -> None:
    """Replace terraform.tfvars."""
    (folder / "terraform.tfvars").write_text("".join(f'{name} = "{value}"\n' for name, value in variables.items()))

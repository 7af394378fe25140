# What tools/dev/tflint.sh holds every module and stack to: every rule of the ruleset for Terraform's language, but for
# its names of files.  Here each file has the name of the one thing in it, and locals of one file only begin with "_".
plugin "terraform" {
  enabled = true
  preset  = "all"
}

rule "terraform_naming_convention" {
  enabled = true
  locals {
    custom = "^_?[a-z][a-z0-9]*(_[a-z0-9]+)*$"
  }
}

rule "terraform_standard_module_structure" {
  enabled = false
}

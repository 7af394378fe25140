#!/usr/bin/env bash
# Prints the Terraform CLI configuration that finds hashicorp/kubernetes in the cache; nothing where the registry answers.
#   config=$(tools/dev/terraform_provider.sh) && [ -z "$config" ] || export TF_CLI_CONFIG_FILE=$config
# Exit 3: it can neither be had nor built; what Go said stands on stderr.
set -euo pipefail
cd "$(dirname "$0")/.."
exec ../.venv/bin/python -m dev.terraform_provider

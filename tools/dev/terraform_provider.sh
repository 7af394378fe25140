#!/usr/bin/env bash
# Prints the Terraform CLI configuration that points at hashicorp/kubernetes in the cache, or nothing where the registry answers.
#   config=$(tools/dev/terraform_provider.sh) && [ -z "$config" ] || export TF_CLI_CONFIG_FILE=$config
# Exit 3: the provider can be neither downloaded nor built; Go's error is on stderr.
set -euo pipefail
cd "$(dirname "$0")/.."
exec ../.venv/bin/python -m dev.terraform_provider

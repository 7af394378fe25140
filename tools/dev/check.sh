#!/usr/bin/env bash
# Everything `make check` compares; writes nothing into the tree.  All steps run, all failures are shown.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit

bin=$PWD/.venv/bin
caches=${XDG_CACHE_HOME:-$HOME/.cache}/corral
# mypy names files by their place in a clone: two clones would read each other's cache.
clone=$(cksum <<<"$PWD" | cut -d ' ' -f 1)
export MYPY_CACHE_DIR=$caches/mypy/$clone RUFF_CACHE_DIR=$caches/ruff PYTHONDONTWRITEBYTECODE=1 CHECKPOINT_DISABLE=1
terraform=$("$bin/python" tools/dev/terraform_program.py) || exit
provider=$(tools/dev/terraform_provider.sh) || exit
[ -z "$provider" ] || export TF_CLI_CONFIG_FILE=$provider
passed=0 failed=0

step() { # step NAME COMMAND...
  local name=$1 output
  shift
  if output=$("$@" 2>&1); then
    passed=$((passed + 1))
    echo "  ok      $name"
  else
    failed=$((failed + 1))
    printf '  FAILED  %s\n%s\n' "$name" "$output"
  fi
}

in_tools() { (cd tools && "$@"); }

in_ansible() ( # against the example inventory, with the pinned collections
  ANSIBLE_COLLECTIONS_PATH=$("$bin/python" tools/dev/ansible_collections.py) || exit
  export ANSIBLE_COLLECTIONS_PATH ANSIBLE_HOME=$caches/ansible ANSIBLE_INVENTORY=inventories/example PATH=$bin:$PATH
  cd ansible && "$@"
)

step "format: Python" in_tools "$bin/ruff" format --check .
step "format: Terraform" "$terraform" fmt -no-color -check -recursive terraform
step "lint: Python" in_tools "$bin/ruff" check .
step "lint: shell" "$bin/shellcheck" .ci/run tools/setup.sh tools/dev/*.sh terraform/modules/*/*.sh tools/tests/support/cluster/shim/*
step "lint: Terraform" tools/dev/tflint.sh
step "types" in_tools "$bin/mypy"
step "layers" in_tools "$bin/lint-imports" --no-cache
step "catalog" "$bin/corral" validate --catalog terraform/catalog
step "demo catalog" "$bin/corral" validate --catalog terraform/catalog-demo
step "demo lock" "$bin/corral" lock --check --catalog terraform/catalog-demo
[ ! -e terraform/catalog/lock.json ] || # the operator's catalog is published without one
  step "predictions against measurements" "$bin/corral" measure --check --catalog terraform/catalog
step "demo predictions against measurements" "$bin/corral" measure --check --catalog terraform/catalog-demo
step "schemas" "$bin/python" tools/dev/schemas.py
step "engine flags" "$bin/python" tools/dev/engine_flags.py
step "engine builds" "$bin/python" tools/dev/engine_builds.py
step "metrics" "$bin/python" tools/dev/metrics_docs.py
step "dashboards" "$bin/python" tools/dev/dashboards.py
step "rendered documents" "$bin/corral" render --check
step "rendered llama-swap config" "$bin/python" tools/dev/golden_config.py
step "Ansible: YAML" in_ansible "$bin/yamllint" --strict --config-file .yamllint . .ansible-lint .yamllint
step "Ansible: syntax" in_ansible "$bin/ansible-playbook" --syntax-check playbooks/{check,site,store,gpu-nodes,llama-server,upgrade,reboot}.yml
step "Ansible: lint" in_ansible "$bin/ansible-lint" --offline --strict --nocolor -q
step "Ansible READMEs" "$bin/python" tools/dev/ansible_docs.py
step "locks of the Terraform tests" in_tools "$bin/python" -m tests.support.terraform_catalogs
step "Terraform READMEs" "$bin/python" tools/dev/terraform_docs.py
step "Terraform modules" "$bin/python" tools/dev/terraform_test.py --only check

echo "check: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]

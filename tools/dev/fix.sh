#!/usr/bin/env bash
# Writes everything that `make check` compares.
set -euo pipefail
cd "$(dirname "$0")/../.."

bin=$PWD/.venv/bin
(cd tools && "$bin/ruff" check --fix-only --quiet . && "$bin/ruff" format .)
[ -t 1 ] || export TF_CLI_ARGS_fmt=-no-color
"$("$bin/python" tools/dev/terraform_program.py)" fmt -recursive terraform
"$bin/python" tools/dev/engine_flags.py --write
"$bin/python" tools/dev/engine_builds.py --write
"$bin/python" tools/dev/metrics_docs.py --write
"$bin/python" tools/dev/dashboards.py --write
"$bin/python" tools/dev/schemas.py --write
"$bin/corral" render
"$bin/python" tools/dev/ansible_docs.py --write
(cd tools && "$bin/python" -m tests.support.terraform_catalogs --write)
"$bin/python" tools/dev/terraform_docs.py --write
"$bin/python" tools/dev/golden_config.py --write

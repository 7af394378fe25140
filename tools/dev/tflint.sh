#!/usr/bin/env bash
# tflint on every module and stack.  Exit 2: tflint has findings; 3: it cannot be built, and Go's error is on stderr.
set -euo pipefail
cd "$(dirname "$0")/.."
exec ../.venv/bin/python -m dev.tflint "$@"

#!/usr/bin/env bash
# tflint on every module and stack.  Exit 2: it found something; 3: it cannot be built, and what Go said stands on stderr.
set -euo pipefail
cd "$(dirname "$0")/.."
exec ../.venv/bin/python -m dev.tflint "$@"

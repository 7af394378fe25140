#!/usr/bin/env bash
# The tests with LiteLLM's real proxy: what docs/clients.md and the modules gateway-config and gateway state about it.
# pytest gets the arguments.
set -euo pipefail
cd "$(dirname "$0")/../../tools"

./setup.sh || exit
CORRAL_GATEWAY=$(dev/gateway.sh) || exit 1
export CORRAL_GATEWAY OMP_THREAD_LIMIT=1 CHECKPOINT_DISABLE=1
../.venv/bin/corral engine --build >&2
exec ../.venv/bin/python -m pytest tests/gateway -p no:randomly "$@"

#!/usr/bin/env bash
# The Python part of make test, which prepares it: several tests at a time, in random order.  pytest's header has the seed;
# --randomly-seed=N repeats an order, -p no:randomly keeps the order of the files, -n 0 runs one test at a time.
set -euo pipefail
cd "$(dirname "$0")/../.."

parallel=(--numprocesses logical --maxprocesses 4 --dist worksteal)
exec .venv/bin/python -m pytest -c tools/pyproject.toml --rootdir tools "${parallel[@]}" tools/tests "$@"

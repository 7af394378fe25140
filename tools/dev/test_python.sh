#!/usr/bin/env bash
# The Python part of make test, which prepares it: several tests at a time, in random order.  pytest's head has the seed;
# --randomly-seed=N repeats an order, -p no:randomly keeps that of the files, -n 0 runs one test at a time.
set -euo pipefail
cd "$(dirname "$0")/../.."

side_by_side=(--numprocesses logical --maxprocesses 4 --dist worksteal)
exec .venv/bin/python -m pytest -c tools/pyproject.toml --rootdir tools "${side_by_side[@]}" tools/tests "$@"

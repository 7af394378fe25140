#!/usr/bin/env bash
# All benchmarks; each prints its figure and the ratio to a reference of the same run.
set -euo pipefail
cd "$(dirname "$0")/../.."

shopt -s nullglob
found=(tools/benchmarks/*.py)
[ "${#found[@]}" -gt 0 ] || { echo "bench: no benchmark found" >&2; exit 1; }
for benchmark in "${found[@]}"; do
  .venv/bin/python "$benchmark" "$@"
done

#!/usr/bin/env bash
# All benchmarks; each prints its figure and the ratio to a reference of the same run.
# Runs every benchmark, then exits 1 if a goal was missed.  CI runs them with `--small`.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit

shopt -s nullglob
found=(tools/benchmarks/*.py)
[ "${#found[@]}" -gt 0 ] || { echo "bench: no benchmark found" >&2; exit 1; }
missed=0
for benchmark in "${found[@]}"; do
  echo "== $benchmark"
  .venv/bin/python "$benchmark" "$@" || missed=$((missed + 1))
done
echo "bench: ${#found[@]} run, $missed missed a goal"
[ "$missed" -eq 0 ]

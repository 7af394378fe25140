#!/usr/bin/env bash
# Finds tests that depend on order or timing: runs the Python part of make test and
# make test-stack N times (default 20), each time in another order,
# every second time beside four processes that only use processor time.  One line a run: its seed, its load, pytest's last line.
# Exit 1 when a run failed; its log is named.
#
#   tools/dev/repeat_tests.sh [N] [PYTEST-ARGUMENTS...]
set -euo pipefail
cd "$(dirname "$0")/../.."

runs=20
if [[ "${1:-}" =~ ^[0-9]+$ ]]; then
  runs=$1
  shift
fi
export CHECKPOINT_DISABLE=1
provider=$(tools/dev/terraform_provider.sh)
[ -z "$provider" ] || export TF_CLI_CONFIG_FILE=$provider
.venv/bin/corral engine --build >/dev/null

logs=$(mktemp --directory)
load=()
unload() {
  [ ${#load[@]} -eq 0 ] || kill "${load[@]}" 2>/dev/null || true
  load=()
}
trap unload EXIT
failed=0
for run in $(seq "$runs"); do
  seed=$((RANDOM * 32768 + RANDOM))
  if [ $((run % 2)) -eq 0 ]; then
    for _ in 1 2 3 4; do
      (while :; do :; done) &
      load+=("$!")
    done
  fi
  verdict=passed
  tools/dev/test_python.sh tools/tests --randomly-seed="$seed" "$@" >"$logs/$run" 2>&1 || verdict="FAILED ($logs/$run)"
  echo "run $run: $verdict, seed $seed, load ${#load[@]}: $(tail -n 1 "$logs/$run")"
  unload
  [ "$verdict" = passed ] || failed=$((failed + 1))
done
echo "repeat_tests: $((runs - failed)) of $runs runs passed"
[ "$failed" -eq 0 ]

#!/usr/bin/env bash
# All tests, several at a time: Terraform's beside Python's, whose summary names the skipped tests with their reasons.
# Arguments go to pytest (make test ARGS="-k catalog").
# INSTALL=1 installs the Debian packages without which tests are skipped.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit

# shellcheck source=tools/dev/debian_packages.sh
source tools/dev/debian_packages.sh
mapfile -t packages < <(lacking busybox=busybox-static chromium=chromium curl=curl)
[ "${INSTALL:-}" != 1 ] || bring test "make test" "${packages[@]}"
tools/setup.sh terraform || exit # corral's own Terraform is tested even where another is on PATH

# Terraform's processes are short: collecting their memory late saves a tenth of their time.
export CHECKPOINT_DISABLE=1 GOGC=${GOGC:-400} GOMEMLIMIT=${GOMEMLIMIT:-1GiB}
provider=$(tools/dev/terraform_provider.sh) || exit
[ -z "$provider" ] || export TF_CLI_CONFIG_FILE=$provider
status=0
# Built here, once and with a message, instead of in the first test that needs it.
.venv/bin/corral engine --build || exit
terraform=$(mktemp)
trap 'rm -f "$terraform"' EXIT
.venv/bin/python tools/dev/terraform_test.py --only test >"$terraform" 2>&1 &
tools/dev/test_python.sh "$@" || status=1
wait "$!" || status=1
cat "$terraform"
exit "$status"

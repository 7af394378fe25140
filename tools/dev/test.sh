#!/usr/bin/env bash
# Tests, several at a time; pytest's summary names the skipped ones with their reasons.
#   tools/dev/test.sh own    rules, commands, files of the repository, hostile input; Terraform's runs beside them
#   tools/dev/test.sh stack  the real llama-swap and engines behind the front door
# Further arguments go to pytest (make test ARGS="-k catalog").
# INSTALL=1 installs the Debian packages without which tests are skipped.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit

part=${1:-}
shift || true
case $part in
  own) folders=(tools/tests --ignore tools/tests/stack) target="make test" ;;
  stack) folders=(tools/tests/stack) target="make test-stack" ;;
  *) echo "test: the part is own or stack, and not \"$part\"" >&2 && exit 2 ;;
esac

# shellcheck source=tools/dev/debian_packages.sh
source tools/dev/debian_packages.sh
mapfile -t packages < <(lacking busybox=busybox-static chromium=chromium curl=curl)
[ "${INSTALL:-}" != 1 ] || bring test "$target" "${packages[@]}"
tools/setup.sh terraform || exit # corral's own Terraform is tested even where another is on PATH

# Terraform's processes are short: collecting their memory late saves a tenth of their time.
export CHECKPOINT_DISABLE=1 GOGC=${GOGC:-400} GOMEMLIMIT=${GOMEMLIMIT:-1GiB}
provider=$(tools/dev/terraform_provider.sh) || exit
[ -z "$provider" ] || export TF_CLI_CONFIG_FILE=$provider
status=0
# Built here, once and with a message, instead of in the first test that needs it.
.venv/bin/corral engine --build || exit
if [ "$part" = own ]; then
  terraform=$(mktemp)
  trap 'rm -f "$terraform"' EXIT
  .venv/bin/python tools/dev/terraform_test.py --only test >"$terraform" 2>&1 &
fi
tools/dev/test_python.sh "${folders[@]}" "$@" || status=1
if [ "$part" = own ]; then
  wait "$!" || status=1
  cat "$terraform"
fi
exit "$status"

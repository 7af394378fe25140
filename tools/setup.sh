#!/usr/bin/env bash
# Makes .venv from tools/requirements.lock, once per lock; every later call answers at once.
# Exit 3: something that must be there before is missing or too old; one sentence says what, which version, and how to get it.
set -euo pipefail
cd "$(dirname "$0")/.."

python_floor="3.11"
terraform_floor="1.9.0"

die() {
  echo "setup: $1" >&2
  exit 3
}

at_least() { # at_least HAVE FLOOR
  [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

find_python() {
  local candidate version found=""
  if [ -n "${PYTHON:-}" ] && ! "$PYTHON" -c '' 2>/dev/null; then
    die "PYTHON names $PYTHON, which does not start; correct it, or take it away: unset PYTHON."
  fi
  for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    version=$("$candidate" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue
    if at_least "$version" "$python_floor"; then
      python=$candidate python_version=$version
      return
    fi
    found=${found:-$version}
  done
  die "Python is ${found:-missing}${found:+, too old}; corral needs $python_floor or newer: install python3 and python3-venv of your distribution, or name one with PYTHON=/path/to/python3."
}

check_terraform() {
  local version
  command -v terraform >/dev/null || die "Terraform is missing; corral needs $terraform_floor or newer: https://developer.hashicorp.com/terraform/install"
  version=$(CHECKPOINT_DISABLE=1 terraform version 2>/dev/null | sed -n '1s/^Terraform v\([0-9.]*\).*/\1/p') || version=""
  at_least "${version:-0}" "$terraform_floor" || die "Terraform is ${version:-of an unknown version}; corral needs $terraform_floor or newer: https://developer.hashicorp.com/terraform/install"
}

install() {
  local log
  log=$(mktemp)
  trap 'rm -f "$log"' RETURN
  echo "setup: $(grep -c == tools/requirements.lock) Python packages into .venv; about a minute the first time" >&2
  rm -f .venv/setup-stamp
  if ! "$python" -m venv --clear .venv >"$log" 2>&1; then
    cat "$log" >&2
    die "Python $python_version cannot make a virtual environment: install python3-venv of your distribution."
  fi
  if ! {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tools/requirements.lock &&
      .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e tools
  } >"$log" 2>&1; then
    cat "$log" >&2
    die "the Python packages could not be installed: see above; is the package index reachable?"
  fi
  echo "$stamp" >.venv/setup-stamp
}

find_python
check_terraform
# The path is part of it: a virtual environment does not survive being moved.
stamp="$python_version $PWD $(cat tools/requirements.lock tools/pyproject.toml | cksum)"
[ -x .venv/bin/corral ] && [ "$(cat .venv/setup-stamp 2>/dev/null)" = "$stamp" ] || install

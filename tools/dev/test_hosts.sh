#!/usr/bin/env bash
# The tests of ansible/: every role on real hosts that are booted for them.  pytest gets the arguments.
# PLAIN=1: Ansible starts a Python for every task, as in an operator's run; else Mitogen keeps one on each host.
# INSTALL=1 installs the Debian packages that are missing.
# Exit 3: this machine cannot boot hosts; one sentence has the reason.  Exit 1: any other failure.
set -euo pipefail
cd "$(dirname "$0")/../../tools"

# shellcheck source=tools/dev/debian_packages.sh
source dev/debian_packages.sh

programs=( # PROGRAM=PACKAGE
  gpg=gpg gpg-agent=gpg-agent ip=iproute2 mke2fs=e2fsprogs mkfs.xfs=xfsprogs mmdebstrap=mmdebstrap nfs-ls=libnfs-utils
  qemu-img=qemu-utils qemu-system-x86_64=qemu-system-x86 setpriv=util-linux ssh=openssh-client systemd-nspawn=systemd-container
)

die() {
  echo "test-hosts: $1" >&2
  exit 3
}

sweep() { # removes the cgroups of killed rooms; all else ends with the room's processes
  local group
  for group in /sys/fs/cgroup/{,systemd/,unified/}corral-hosts-*; do
    [ -d "$group" ] || continue
    [ "${group##*-}" = $$ ] || ! kill -0 "${group##*-}" 2>/dev/null || continue
    find "$group" -depth -type d -exec rmdir {} + || true # a process of it still runs; the next sweep tries again
  done
}

[ "$(uname -s)" = Linux ] || die "the test hosts are booted by systemd-nspawn, which needs Linux."
[ "$(id -u)" = 0 ] || die "test hosts are booted as root: sudo make test-hosts"
mapfile -t packages < <(lacking "${programs[@]}")
bring test-hosts "make test-hosts" "${packages[@]}"

sweep
unshare --mount --net --pid true || die "this kernel or container allows no mount, network and process name spaces, which the test hosts need."
./setup.sh || exit # after the checks above, so that a refusal does not take a minute
unshare --mount ../.venv/bin/python -m tests.support.hosts.images || exit 1
case " $* " in *" --long "*) ../.venv/bin/python -m tests.support.hosts.llama_cpp_archive || exit 1 ;; esac
ANSIBLE_COLLECTIONS_PATH=$(../.venv/bin/python dev/ansible_collections.py) || exit 1
../.venv/bin/python -m compileall -q -j 0 ../.venv/lib # nothing in a room writes what it compiles
export ANSIBLE_COLLECTIONS_PATH PYTHONDONTWRITEBYTECODE=1

scratch=$(mktemp --directory --tmpdir corral-hosts-XXXXXX)
trap '[ $? -ne 0 ] || rm -rf --one-file-system "$scratch"; sweep' EXIT # outside the rooms, whose mounts are not here

enter() { # enter NAME PYTEST-ARGUMENTS...: become pytest in its own name spaces, which always end with this script
  export CORRAL_HOSTS_ROOM=corral-hosts-$1-$$
  local files=$scratch/$1
  shift
  # The inner shell is the room's process 1, and reaps orphaned processes.
  # shellcheck disable=SC2016 # expanded in the room
  exec setpriv --pdeathsig KILL unshare --mount --net --pid --fork --kill-child --mount-proc \
    bash -c '../.venv/bin/python -m pytest "$@"; exit $?' bash --basetemp "$files" "$@"
}

if [ $# -gt 0 ]; then
  case " $* " in *" tests/"*) ;; *) set -- tests/hosts "$@" ;; esac
  (enter all "$@") || exit 1 # pytest also uses exit code 3
  exit
fi

# All of them, in three rooms in parallel: two cores emulate, compile, and wait for answers at the same time.
emulated=(tests/hosts/test_store_machine.py)
llama=(tests/hosts/test_llama_cpp.py tests/hosts/test_llama_server*.py)
rest=(tests/hosts "${emulated[@]/#/--ignore=}" "${llama[@]/#/--ignore=}")
declare -A pids
for room in emulated llama; do
  declare -n files=$room
  enter "$room" "${files[@]}" >"$scratch/$room.log" 2>&1 &
  pids[$room]=$!
done
failed=()
(enter rest "${rest[@]}") || failed+=(rest)
for room in llama emulated; do
  wait "${pids[$room]}" || failed+=("$room")
  cat "$scratch/$room.log"
done
echo "test-hosts: $SECONDS s" >&2
[ ${#failed[@]} -eq 0 ] || { echo "test-hosts: failed: ${failed[*]}" >&2; exit 1; }

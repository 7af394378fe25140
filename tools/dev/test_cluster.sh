#!/usr/bin/env bash
# What deploys to Kubernetes, on a real one: a throwaway cluster on this machine, or with CLUSTER=current the one that
# the current context leads to (tests/support/cluster/current.py says what that needs).  Arguments go to pytest.
# INSTALL=1 installs the Debian packages that are missing.
# Exit 3: this machine cannot run a cluster; one sentence says why.  Whatever else fails is 1.
set -euo pipefail
cd "$(dirname "$0")/../../tools"

# shellcheck source=tools/dev/debian_packages.sh
source dev/debian_packages.sh

programs=( # PROGRAM=PACKAGE
  containerd=containerd dnsmasq=dnsmasq-base docker-registry=docker-registry ip=iproute2 iptables=iptables
  mmdebstrap=mmdebstrap nsenter=util-linux openssl=openssl runc=runc setpriv=util-linux
)

die() {
  echo "test-cluster: $1" >&2
  exit 3
}

missing() { # the packages that are missing, a line each
  lacking "${programs[@]}"
  command -v initdb >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null || echo postgresql
  [ -x /usr/lib/cni/bridge ] || [ -x /opt/cni/bin/bridge ] || echo containernetworking-plugins
}

started=$SECONDS
if [ "${CLUSTER:-}" != current ]; then
  [ "$(uname -s)" = Linux ] || die "the test cluster needs Linux; with a cluster of your own: CLUSTER=current make test-cluster"
  [ "$(id -u)" = 0 ] || die "the test cluster's node runs as root: sudo make test-cluster"
  mapfile -t packages < <(missing)
  bring test-cluster "make test-cluster" "${packages[@]}"
  unshare --mount --net --pid true || die "this kernel or container allows no mount, network and process name spaces, which the test cluster lives in."
fi

./setup.sh || exit # after the questions above: an answer should not take a minute
config=$(dev/terraform_provider.sh) || exit 1
[ -z "$config" ] || export TF_CLI_CONFIG_FILE=$config
CORRAL_MANIFEST_TOOLS=$(dev/manifest_tools.sh) || exit 1
export CORRAL_MANIFEST_TOOLS PYTHONDONTWRITEBYTECODE=1 CHECKPOINT_DISABLE=1
[ "${CLUSTER:-}" = current ] || ../.venv/bin/python -m tests.support.cluster build || exit 1
../.venv/bin/python -m compileall -q corral # the labs' clones bring it along
echo "test-cluster: everything is built ($((SECONDS - started)) s)" >&2

# Several files at a time, each worker on a throwaway cluster of its own: tests/cluster/conftest.py has the groups.
side_by_side=(--numprocesses 4)
[ -z "${CLUSTER:-}" ] || side_by_side=()
case " $* " in
  *" tests/"*) ;;
  *) set -- tests/cluster "${side_by_side[@]}" "$@" ;;
esac
status=0
../.venv/bin/python -m pytest "$@" || status=$?
echo "test-cluster: $((SECONDS - started)) s in all" >&2
[ "$status" -eq 0 ] || exit 1 # pytest has a 3 of its own

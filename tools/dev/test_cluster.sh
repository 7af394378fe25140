#!/usr/bin/env bash
# The tests of the deployment on a real Kubernetes: a throwaway cluster on this machine, or with CLUSTER=current the one of
# the current context (tests/support/cluster/current.py lists its requirements).  pytest gets the arguments.
# INSTALL=1 installs the Debian packages that are missing.
# Exit 3: this machine cannot run a cluster; one sentence has the reason.  Exit 1: any other failure.
set -euo pipefail
cd "$(dirname "$0")/../../tools"

# shellcheck source=tools/dev/debian_packages.sh
source dev/debian_packages.sh

programs=( # PROGRAM=PACKAGE
  containerd=containerd dnsmasq=dnsmasq-base docker-registry=docker-registry ip=iproute2 iptables=iptables
  mmdebstrap=mmdebstrap nsenter=util-linux openssl=openssl prometheus=prometheus
  prometheus-alertmanager=prometheus-alertmanager runc=runc setpriv=util-linux
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
  unshare --mount --net --pid true || die "this kernel or container allows no mount, network and process name spaces, which the test cluster needs."
fi

./setup.sh || exit # after the checks above, so that a refusal does not take a minute
config=$(dev/terraform_provider.sh) || exit 1
[ -z "$config" ] || export TF_CLI_CONFIG_FILE=$config
CORRAL_MANIFEST_TOOLS=$(dev/manifest_tools.sh) || exit 1
export CORRAL_MANIFEST_TOOLS PYTHONDONTWRITEBYTECODE=1 CHECKPOINT_DISABLE=1
[ "${CLUSTER:-}" = current ] || ../.venv/bin/python -m tests.support.cluster build || exit 1
../.venv/bin/python -m compileall -q -j 0 corral ../.venv/lib # corral is copied with the labs' clones
echo "test-cluster: everything is built ($((SECONDS - started)) s)" >&2

# Several files at a time, each worker on a throwaway cluster of its own: tests/cluster/conftest.py has the groups.
parallel=(--numprocesses 7)
[ -z "${CLUSTER:-}" ] || parallel=()
case " $* " in
  *" tests/"*) ;;
  *) set -- tests/cluster "${parallel[@]}" "$@" ;;
esac
status=0
../.venv/bin/python -m pytest "$@" || status=$?
echo "test-cluster: $((SECONDS - started)) s in all" >&2
[ "$status" -eq 0 ] || exit 1 # pytest also uses exit code 3

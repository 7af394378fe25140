#!/usr/bin/env bash
# Ansible on the operator's machines: checks the inventory, shows what would change, asks, then changes it.
#   make hosts INVENTORY=ansible/inventories/homelab [PLAYBOOK=store] [ARGS="--limit nas"]
# Exit 2: the inventory or the play is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."

die() {
  echo "hosts: $1" >&2
  exit 2
}

playbook=ansible/playbooks/${PLAYBOOK:-site}.yml
[ -n "${INVENTORY:-}" ] || die "name an inventory, a copy of ansible/inventories/example: make hosts INVENTORY=ansible/inventories/homelab"
[ -e "$INVENTORY" ] || die "$INVENTORY does not exist. Copy the example: cp -r ansible/inventories/example $(printf %q "$INVENTORY")"
[ -e "$playbook" ] || die "the play $playbook does not exist; the plays are: $(basename --suffix .yml ansible/playbooks/*.yml | xargs)"
inventory=$(realpath "$INVENTORY")

ANSIBLE_COLLECTIONS_PATH=$(.venv/bin/python tools/dev/ansible_collections.py)
export ANSIBLE_COLLECTIONS_PATH ANSIBLE_CONFIG=$PWD/ansible/ansible.cfg PATH=$PWD/.venv/bin:$PATH

case ${PLAYBOOK:-site} in
  check | site) ;; # begin with the check
  *)
    echo "hosts: check of the inventory (no machine is contacted)" >&2
    ansible-playbook --inventory "$inventory" ansible/playbooks/check.yml "$@"
    ;;
esac

echo "hosts: preview of $playbook (no change yet)" >&2
ansible-playbook --inventory "$inventory" "$playbook" --check --diff "$@"

if [ "${YES:-}" != 1 ]; then
  read -r -p "Make these changes? [y/N] " answer || answer=
  [ "$answer" = y ] || exit 1
fi
ansible-playbook --inventory "$inventory" "$playbook" --diff "$@"

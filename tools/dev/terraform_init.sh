#!/usr/bin/env bash
# terraform init of the homelab stack, and where its state lies.
#   make init                 as it was; at first in the stack's own folder
#   make init BACKEND=pg      in PostgreSQL, schema "llama-cpp"; PG_CONN_STR says where
#   make init BACKEND=local   in the stack's own folder again
# A state that exists is taken along; Terraform asks first.  Exit 2: wrong usage.
set -euo pipefail
cd "$(dirname "$0")/../.."

die() {
  printf 'init: %s\n  → %s\n' "$1" "$2" >&2
  exit 2
}

stack=terraform/stacks/homelab
override=$stack/backend_override.tf
before=$(cat "$override" 2>/dev/null || true)

case ${BACKEND:-} in
'') ;;
local) rm -f "$override" ;;
pg)
  [ -n "${PG_CONN_STR:-}" ] || die "PG_CONN_STR does not say where PostgreSQL is." \
    "export PG_CONN_STR=postgres://USER@HOST/DATABASE, with the password in PGPASSWORD or ~/.pgpass; then: make init BACKEND=pg"
  cat >"$override" <<'TF'
# Written by make init BACKEND=pg.  The connection comes from PG_CONN_STR; nothing secret stands here.
terraform {
  backend "pg" {
    schema_name = "llama-cpp"
  }
}
TF
  ;;
*) die "BACKEND is $BACKEND; it must be local or pg." "make init BACKEND=pg" ;;
esac

terraform=$(.venv/bin/python tools/dev/terraform_program.py)
config=$(tools/dev/terraform_provider.sh)
[ -z "$config" ] || export TF_CLI_CONFIG_FILE=$config

words=(-input=false)
if [ "$before" != "$(cat "$override" 2>/dev/null || true)" ]; then
  words=(-migrate-state) # asks before it copies, and would say so if a state were there already
fi
[ -t 1 ] || words+=(-no-color) # Terraform colours what goes into a file, too
if ! "$terraform" -chdir="$stack" init "${words[@]}" "$@"; then
  # What did not work is not left behind: the next command would ask for it.
  if [ -n "$before" ]; then printf '%s\n' "$before" >"$override"; else rm -f "$override"; fi
  exit 1
fi

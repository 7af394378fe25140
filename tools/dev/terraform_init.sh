#!/usr/bin/env bash
# terraform init of the homelab stack, with the choice of its state's backend.
#   make init                 keeps the backend; the first is a file in the stack's own folder
#   make init BACKEND=pg      PostgreSQL, schema "llama-cpp", at PG_CONN_STR
#   make init BACKEND=local   a file in the stack's own folder again
# Terraform asks before it copies an existing state.  The first init pins the provider by its hash, in .terraform.lock.hcl;
# every later one refuses another provider, except with ARGS=-upgrade.  Exit 2: wrong usage;
# 3: there is no Terraform that corral can use.
set -euo pipefail
cd "$(dirname "$0")/../.."

die() {
  printf 'init: %s\n  → %s\n' "$1" "$2" >&2
  exit 2
}

umask 077 # a state and a plan hold secrets, a provider is a program
stack=terraform/stacks/homelab
override=$stack/backend_override.tf
before=$(cat "$override" 2>/dev/null || true)
terraform=$(.venv/bin/python tools/dev/terraform_program.py --started)

case ${BACKEND:-} in
'') ;;
local) rm -f "$override" ;;
pg)
  [ -n "${PG_CONN_STR:-}" ] || die "PG_CONN_STR is not set; it must hold the address of PostgreSQL." \
    "export PG_CONN_STR=postgres://USER@HOST/DATABASE, with the password in PGPASSWORD or ~/.pgpass; then: make init BACKEND=pg"
  cat >"$override" <<'TF'
# Written by make init BACKEND=pg.  PG_CONN_STR has the connection; this file holds no secret.
terraform {
  backend "pg" {
    schema_name = "llama-cpp"
  }
}
TF
  ;;
*) die "BACKEND is $BACKEND; it must be local or pg." "make init BACKEND=pg" ;;
esac

config=$(tools/dev/terraform_provider.sh)
[ -z "$config" ] || export TF_CLI_CONFIG_FILE=$config

options=(-input=false)
if [ "$before" != "$(cat "$override" 2>/dev/null || true)" ]; then
  options=(-migrate-state) # asks before it copies
fi
pins=$stack/.terraform.lock.hcl
[ ! -e "$pins" ] || [[ " $* " == *" -upgrade"* ]] || options+=(-lockfile=readonly)
[ -t 1 ] || options+=(-no-color) # Terraform also colours output into a file
if ! "$terraform" -chdir="$stack" init "${options[@]}" "$@"; then
  # The override of a failed init must not affect the next command.
  if [ -n "$before" ]; then printf '%s\n' "$before" >"$override"; else rm -f "$override"; fi
  [[ " ${options[*]} " != *" -lockfile="* ]] || printf 'init: %s pins the provider since the first make init.\n  → %s\n' \
    "$pins" "Only where it is meant to be another one: rm $pins, then: make init" >&2
  exit 1
fi

#!/usr/bin/env bash
# Deletes the files that setup and the local stack created in this clone.  Other clones share the cache of built programs, so it stays.
set -euo pipefail
cd "$(dirname "$0")/../.."

state=${CORRAL_STATE:-.corral}
if [ "${YES:-}" != 1 ]; then
  du -sh .venv "$state" 2>/dev/null || true
  read -r -p "Delete .venv and $state with its models? [y/N] " answer
  [ "$answer" = y ] || exit 1
fi
[ ! -x .venv/bin/corral ] || .venv/bin/corral down
# By name: CORRAL_STATE may be a folder with other files in it.
rm -rf .venv "$state"/{demo,logs,run,store,terraform}
rmdir "$state" 2>/dev/null || true

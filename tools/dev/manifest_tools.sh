#!/usr/bin/env bash
# Prints the folder with checkov and kubernetes-validate.  They stay out of .venv, because checkov alone installs ninety
# packages, some of them older than ours.  Their environment stays in the cache.
set -euo pipefail
cd "$(dirname "$0")"

lock=$PWD/manifest_tools/requirements.lock
python=${PYTHON:-../../.venv/bin/python}
key=$("$python" -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read() + sys.version.encode()).hexdigest()[:16])' "$lock")
folder=${XDG_CACHE_HOME:-$HOME/.cache}/corral/manifest-tools-$key

if [ ! -e "$folder/complete" ]; then
  echo "Installing checkov and kubernetes-validate into $folder (once, about a minute) …" >&2
  mkdir -p "$folder"
  exec 9>"$folder/.lock"
  flock 9
  if [ ! -e "$folder/complete" ]; then
    "$python" -m venv --clear "$folder/venv" >&2
    "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$lock" >&2
    touch "$folder/complete"
  fi
fi
echo "$folder/venv/bin"

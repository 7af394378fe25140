#!/usr/bin/env bash
# Prints the folder with LiteLLM's proxy and the clients of docs/clients.md that .venv does not have.  They stay out of .venv: LiteLLM
# installs 135 packages, some of them of other versions than ours.  Their environments stay in the cache, a folder for each set of locks.
set -euo pipefail
cd "$(dirname "$0")"

python=${PYTHON:-../../.venv/bin/python}
key=$("$python" -c 'import hashlib, sys; print(hashlib.sha256(b"".join(open(one, "rb").read() for one in sys.argv[1:]) + sys.version.encode()).hexdigest()[:16])' \
  gateway/requirements.lock gateway/node/package-lock.json)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/corral/gateway-$key

if [ ! -e "$folder/complete" ]; then
  echo "Installing LiteLLM's proxy (640 MB) and clients into $folder (once, a few minutes) …" >&2
  mkdir -p "$folder"
  exec 9>"$folder/.lock"
  flock 9
  if [ ! -e "$folder/complete" ]; then
    "$python" -m venv --clear "$folder/venv" >&2
    "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes \
      --requirement gateway/requirements.lock >&2
    if command -v npm >/dev/null; then # where there is none, the snippet for Node is not run
      cp gateway/node/package.json gateway/node/package-lock.json "$folder/"
      (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --silent >&2)
    fi
    touch "$folder/complete"
  fi
fi
echo "$folder"

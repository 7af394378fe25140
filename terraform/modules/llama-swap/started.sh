#!/bin/sh
# The startup probe: the store must hold every file that a model's command names, and llama-swap must answer.
#
#   started.sh FILES [ENDPOINT]
#
# FILES lists the paths, one to a line.  A missing file is reported as "startup: CODE path=PATH: SENTENCE", which Kubernetes
# puts into the pod's event; programs read the code and the path.

set -u

while IFS= read -r path; do
  if [ -n "$path" ] && ! [ -r "$path" ]; then
    echo "startup: file-missing path=$path: it is not in the store, or cannot be read"
    exit 1
  fi
done <"$1"
exec curl --silent --show-error --fail --max-time 2 --output /dev/null "${2:-http://127.0.0.1:8080}/running"

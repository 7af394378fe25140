#!/bin/sh
# The startup probe: the store must hold every file that a model's command names, and llama-swap must answer.
#
#   started.sh FILES ENDPOINT KEY-FILE
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
exec sh "${0%/*}/ask.sh" "$2/running" "$3" --show-error --fail --max-time 2 --output /dev/null

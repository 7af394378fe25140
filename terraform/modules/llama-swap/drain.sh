#!/bin/sh
# Before llama-swap is told to stop: waits while requests are under way, so that their answers are not cut.
#
#   drain.sh SECONDS [ENDPOINT]
#
# Told to stop, llama-swap itself waits 30 s and no longer, and takes nothing new.  Here it is still asked as usual, and has
# to be found idle twice in a row: a pod that is on its way out gets requests for another moment, until every node has
# heard of it.

set -u

events="${2:-http://127.0.0.1:8080}/api/events"
left=$1 # seconds, which are also the rounds: each one listens for a second
idle=0
busy=''
while [ "$left" -gt 0 ]; do
  left=$((left - 1))
  # The stream of events begins with the state of everything; its last word in this second counts.
  heard=$(curl --silent --no-buffer --max-time 1 "$events")
  code=$?
  # 28: the second is over.  Everything else ends at once, and so would a llama-swap that is gone.
  [ "$code" -ne 7 ] || exit 0
  [ "$code" -eq 28 ] || sleep 1
  state=$(printf '%s\n' "$heard" | grep '^data: \{0,1\}{"type":"inflight"' | tail -n 1)
  case $state in
  *'"requests\":[]'*)
    idle=$((idle + 1))
    [ "$idle" -lt 2 ] || exit 0
    ;;
  *)
    idle=0
    # Where the log of process 1 goes, that of a hook does not.
    if [ -z "$busy" ]; then
      busy=said
      echo "drain: requests are under way; waiting up to $left s for their answers" 2>/dev/null >/proc/1/fd/2
    fi
    ;;
  esac
done
echo "drain: requests are still under way; llama-swap is told to stop and gives them 30 s more" 2>/dev/null >/proc/1/fd/2
exit 0

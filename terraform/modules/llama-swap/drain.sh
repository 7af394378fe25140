#!/bin/sh
# The preStop hook: waits while requests are in flight, so that SIGTERM does not interrupt their answers.
#
#   drain.sh SECONDS ENDPOINT KEY-FILE
#
# After SIGTERM llama-swap itself waits at most 30 s, and accepts no new requests.  During this hook it serves normally, and
# must be idle in two successive rounds: a terminating pod receives requests for another moment, until every node has
# removed it from the Service.

set -u

left=$1 # seconds, which are also the rounds: each one reads events for a second
idle=0
reported=''
while [ "$left" -gt 0 ]; do
  left=$((left - 1))
  # The stream of events begins with the complete state; the last state or change within this second counts.
  received=$(sh "${0%/*}/ask.sh" "$2/api/events" "$3" --no-buffer --max-time 1)
  code=$?
  # 28: the second is over.  Every other code ends immediately, as with a llama-swap that has ended (7).
  [ "$code" -ne 7 ] || exit 0
  [ "$code" -eq 28 ] || sleep 1
  state=$(printf '%s\n' "$received" | grep '^data: \{0,1\}{"type":"inflight"' | tail -n 1)
  case $state in
  *'"requests\":[]'* | *'{\"operation\":\"snapshot\"}'*) # before llama-swap v240, and from then on
    idle=$((idle + 1))
    [ "$idle" -lt 2 ] || exit 0
    ;;
  *)
    idle=0
    # The output of a hook is not in the pod's log; that of process 1 is.
    if [ -z "$reported" ]; then
      reported=yes
      echo "drain: requests are in flight; waiting up to $left s for their answers" 2>/dev/null >/proc/1/fd/2
    fi
    ;;
  esac
done
echo "drain: requests are still in flight; llama-swap gets SIGTERM and gives them 30 s more" 2>/dev/null >/proc/1/fd/2
exit 0

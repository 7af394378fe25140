#!/bin/sh
# Stands in front of a llama-server and asks whether the card has room for it, before anything is loaded:
#
#   preflight.sh --model ID --need-mib N -- llama-server …
#
# Room enough, or nobody can tell: it becomes the engine (exec: same pid, signals reach it).  Too little: exit code 75,
# and a line that says who needs what and who holds the rest.  It says one line, on stderr, and within a second,
# whatever the source does.
#
# The source is nvidia-smi, or the command in CORRAL_VRAM_SOURCE: a line "free, total" in MiB for each card.  Of several
# cards CUDA_VISIBLE_DEVICES has to name one, beyond doubt; otherwise it is unknown which one the engine takes.
#
# Nothing is written to disk: in a container the root file system may be read-only.

set -u

readonly SHORT=75       # EX_TEMPFAIL of sysexits.h: may work later
readonly USAGE=64       # EX_USAGE
readonly NO_PROGRAM=127 # as a shell would

# Seconds; the longest way through them stays below one.
readonly SLOW=0.25       # a source that takes so long is asked nothing more
readonly LATE=0.65       # so much later it has no answer
readonly SETTLE=0.1      # what a process held that has just died comes free a moment later
readonly SECOND_LOOK=0.1 # twice as long at most, for the second reading and for each list of names

say() {
  printf 'preflight: %s\n' "$1" >&2
}

usage() {
  say "$1; usage: preflight.sh --model ID --need-mib N -- llama-server …"
  exit "$USAGE"
}

is_number() {
  case $1 in
  '' | *[!0-9]* | ??????????*) return 1 ;;
  esac
}

# ask SLOW LATE COMMAND…: what the command says, line for line, then "=answered CODE"; or "=slow" after SLOW seconds,
# and LATE seconds later "=late" and the end of the command.
#
# Readers go by these marks and not by the end of the pipe, which a process that cannot even be killed (a hung driver)
# holds open.  What can be reaped is reaped here: llama-swap as process 1 of a container does it for nobody else.
ask() {
  slow=$1 late=$2
  shift 2
  {
    trap 'kill -9 "-$!" || kill -9 "$!"; exit' TERM
    # A group of its own, so that what a script has started ends with it.
    if command -v setsid >/dev/null; then setsid "$@" 2>&1 & else "$@" 2>&1 & fi
    wait "$!"
    echo "=answered $?"
  } &
  asking=$!
  {
    trap 'kill "$!"; wait; exit' TERM
    sleep "$slow" &
    wait "$!"
    echo "=slow"
    sleep "$late" &
    wait "$!"
    echo "=late"
    kill "$asking"
  } &
  timing=$!
  wait "$asking"
  kill "$timing"
  wait "$timing"
} 2>/dev/null

ask_for_memory() { # SLOW LATE
  if [ -n "${CORRAL_VRAM_SOURCE-}" ]; then
    ask "$1" "$2" sh -c "$CORRAL_VRAM_SOURCE"
    return
  fi
  set -- "$@" nvidia-smi --query-gpu=memory.free,memory.total --format=csv,noheader,nounits
  case ${CUDA_VISIBLE_DEVICES-} in
  GPU-*,*) ;;
  GPU-*) set -- "$@" "--id=$CUDA_VISIBLE_DEVICES" ;;
  esac
  ask "$@"
}

# Reads the answer and says it in a line: "FREE TOTAL quick", "FREE TOTAL slow", or "unknown REASON".
understand() {
  cards=0 free='' total='' odd='' code='' pace=quick
  while [ -z "$code" ] && IFS= read -r line; do
    this_free=${line%%,*} this_total=${line#*,}
    this_total=${this_total# }
    case $line in
    =slow) pace=slow ;;
    =late) code=late ;;
    =answered*) code=${line#* } ;;
    WARNING:*) ;; # of a worn board; the figures stand
    *)
      if [ "$this_free" = "$line" ] || ! is_number "$this_free" || ! is_number "$this_total" || [ "$this_free" -gt "$this_total" ]; then
        odd=${odd:-$line}
      elif [ "$cards" = "${CARD:-0}" ]; then
        free=$this_free total=$this_total
      fi
      cards=$((cards + 1))
      ;;
    esac
  done
  [ -z "$odd" ] || odd=$(printf '%.200s' "$odd" | tr -d '\000-\037\177')
  case $code in
  0) ;;
  late) echo "unknown $SOURCE does not answer" && return ;;
  *) echo "unknown $SOURCE fails with exit code $code${odd:+: $odd}" && return ;;
  esac
  if [ -n "$odd" ]; then
    echo "unknown $SOURCE says: $odd"
  elif [ "$cards" = 0 ]; then
    echo "unknown $SOURCE says nothing"
  elif [ "$cards" -gt 1 ] && [ -z "$CARD" ]; then
    echo "unknown there are $cards cards, and CUDA_VISIBLE_DEVICES does not name one for certain (its UUID does)"
  elif [ -z "$free" ]; then
    echo "unknown there is no card $CARD, which CUDA_VISIBLE_DEVICES names"
  else
    echo "$free $total $pace"
  fi
}

look() { # SLOW LATE
  ask_for_memory "$1" "$2" | understand
}

# Who holds memory, for people: each engine that a preflight let through, and what else nvidia-smi can name.
holders() { # ask nvidia-smi too: yes or no
  {
    ask "$SECOND_LOOK" "$SECOND_LOOK" grep -aos 'CORRAL_SEAT=[a-z0-9.-]*:[0-9]*' /proc/[0-9]*/environ
    if [ "$1" = yes ]; then
      ask "$SECOND_LOOK" "$SECOND_LOOK" \
        nvidia-smi --query-compute-apps=pid,used_memory,process_name --format=csv,noheader,nounits
    fi
    echo "=end"
  } | {
    named='' seated=' '
    while IFS= read -r line && [ "$line" != "=end" ]; do
      case $line in
      /proc/*) # /proc/PID/environ:CORRAL_SEAT=MODEL:MIB
        pid=${line#/proc/} seat=${line#*=}
        pid=${pid%%/*}
        seated="$seated$pid "
        named="$named, ${seat%:*} (pid $pid, seat of ${seat##*:} MiB)"
        ;;
      *,*,*) # PID, MIB, /PATH/TO/PROGRAM
        pid=${line%%,*} mib=${line#*, } name=${line#*,*, }
        case $seated in *" $pid "*) continue ;; esac
        named="$named, ${name##*/} (pid $pid, ${mib%%,*} MiB)"
        ;;
      esac
    done
    printf '%s' "${named#, }"
  }
}

# Whether what was seen is enough; unknown is no reason to refuse.
has_room() {
  case $seen in
  unknown*) ;;
  *) [ "${seen%% *}" -ge "$need" ] ;;
  esac
}

model='' need=''
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
  --model) model=${2-} ;;
  --need-mib) need=${2-} ;;
  *) usage "unknown argument $1" ;;
  esac
  [ $# -gt 1 ] || usage "$1 needs a value"
  shift 2
done
[ -n "$model" ] || usage "--model is missing"
is_number "$need" || usage "--need-mib is '$need', not a number of MiB"
[ $# -gt 1 ] || usage "there is no command after --"
shift

if ! command -v "$1" >/dev/null 2>&1; then
  say "no engine for $model: $1 is missing or not executable"
  exit "$NO_PROGRAM"
fi

SOURCE=nvidia-smi CARD=''
[ -z "${CORRAL_VRAM_SOURCE-}" ] || SOURCE=CORRAL_VRAM_SOURCE
case ${CUDA_VISIBLE_DEVICES-} in
*[!0-9]* | '') ;;
*) [ "${CUDA_DEVICE_ORDER-}" != PCI_BUS_ID ] || CARD=$CUDA_VISIBLE_DEVICES ;; # CUDA's own order is another one
esac

case ${CUDA_VISIBLE_DEVICES-all} in
'' | -*) seen="unknown CUDA_VISIBLE_DEVICES hides every card" ;;
*)
  if [ "$SOURCE" = nvidia-smi ] && ! command -v nvidia-smi >/dev/null; then
    seen="unknown nvidia-smi is not installed"
  else
    seen=$(look "$SLOW" "$LATE")
  fi
  ;;
esac

if ! has_room && [ "${seen##* }" = quick ]; then
  sleep "$SETTLE"
  again=$(look "$SECOND_LOOK" "$SECOND_LOOK")
  case $again in
  unknown*) ;; # the first answer stands
  *) seen=$again ;;
  esac
fi

pace=${seen##* } figures=${seen% *}
free=${figures% *} total=${figures#* }
if ! has_room; then
  by_name=no
  [ "$SOURCE" = CORRAL_VRAM_SOURCE ] || [ "$pace" = slow ] || by_name=yes
  held=$(holders "$by_name")
  say "no room for $model: it needs $need MiB, $free MiB of $total MiB are free; held by ${held:-nobody who can be seen \
from here}. Unload what is not needed, or see what fits: corral seat"
  exit "$SHORT"
fi
case $seen in
unknown*) say "memory unknown for $model, which needs $need MiB: ${seen#unknown }; the engine tries" ;;
*) say "room for $model: it needs $need MiB, $free MiB of $total MiB are free" ;;
esac

# A crash must not write a core as large as the model.  Not in POSIX, but every sh of a Linux image has it.
# shellcheck disable=SC3045
ulimit -c 0 2>/dev/null
export CORRAL_SEAT="$model:$need" # how the next preflight finds out who sits where
exec "$@"

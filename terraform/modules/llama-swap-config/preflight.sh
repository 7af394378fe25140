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

# Seconds; the longest way to a refusal with names takes 0.85.
readonly LATE=0.6        # the longest of the first reading
readonly SETTLE=0.1      # what a process held that has just died comes free a moment later
readonly SECOND_LOOK=0.2 # the longest of the second reading, for which there is time
readonly QUICK=25        # (hundredths) when the first took no longer
readonly GLANCE=0.1      # the longest of the search for engines
readonly NAMES=0.15      # the longest of nvidia-smi's list

readonly MOST_LINES=64 # more than anybody has cards; a source without end is not waited for

say() {
  printf 'preflight: %s\n' "$1" >&2
}

usage() {
  say "$1; usage: preflight.sh --model ID --need-mib N -- llama-server …"
  exit "$USAGE"
}

no_engine() { # PROGRAM
  say "no engine for $model: $1 is missing or not executable"
}

is_number() { # of nine digits at most; in arithmetic a zero in front means octal
  case $1 in
  '' | *[!0-9]* | 0?* | ??????????*) return 1 ;;
  esac
}

strip() { # TEXT; sets stripped to it without the blanks around it, a carriage return among them
  stripped=${1#"${1%%[![:space:]]*}"}
  stripped=${stripped%"${stripped##*[![:space:]]}"}
}

is_program() {
  [ -f "$1" ] && [ -x "$1" ]
}

can_run() ( # PROGRAM, found as exec finds it: `command -v` also names what is not executable, and functions
  case $1 in
  */*) is_program "$1" && exit ;;
  *)
    set -f
    IFS=:
    for folder in ${PATH-}; do is_program "${folder:-.}/$1" && exit; done
    ;;
  esac
  exit 1
)

clock() { # sets now, in hundredths of a second; later each time where there is no such clock
  read -r now _ </proc/uptime || now=${begun:-1}99999.00
  now=${now%.*}${now#*.}
} 2>/dev/null

# ask LIMIT COMMAND…: what the command says, then on lines of their own "=said " and its first line on stderr, and
# "=answered CODE"; the CODE of one that has to be ended, LIMIT seconds later, is late.
#
# Readers go by these marks and not by the end of the pipe, which a process that cannot even be killed (a hung driver)
# holds open.  What can be reaped is reaped here: llama-swap as process 1 of a container does it for nobody else.
ask() {
  limit=$1
  shift
  {
    {
      {
        trap 'kill -9 "-$!" || kill -9 "$!"; printf "\n=answered late\n"; exit' TERM
        # A group of its own, so that what a script has started ends with it.
        if command -v setsid >/dev/null; then set -- setsid "$@"; fi
        "$@" 2>&1 >&3 3>&- &
        wait "$!"
        printf '\n=answered %s\n' "$?"
      } &
      asking=$!
      {
        trap 'kill "$!"; wait; exit' TERM
        sleep "$limit" &
        wait "$!"
        kill "$asking"
      } &
      timing=$!
      wait "$asking"
      kill "$timing"
      wait "$timing"
    } | { # stderr and the mark come this way round, or they would stand in the middle of a line of stdout
      IFS= read -r said
      printf '\n=said %.200s\n%s\n' "$said" "$(grep -am1 '^=answered')" >&3
    }
  } 3>&1
} 2>/dev/null

ask_for_memory() { # LIMIT
  if [ -n "${CORRAL_VRAM_SOURCE-}" ]; then
    ask "$1" sh -c "$CORRAL_VRAM_SOURCE"
  else
    ask "$1" nvidia-smi --query-gpu=memory.free,memory.total --format=csv,noheader,nounits ${UUID:+"--id=$UUID"}
  fi
}

# Sets free and total to those of a line "FREE, TOTAL".
parse() {
  case $1 in
  *,*) ;;
  *) return 1 ;;
  esac
  strip "${1%%,*}" && this_free=$stripped
  strip "${1#*,}" && this_total=$stripped
  is_number "$this_free" && is_number "$this_total" && [ "$this_free" -le "$this_total" ] && [ "$this_total" -gt 0 ]
}

# Reads the answer and says it in a line: "FREE TOTAL", or "unknown REASON".
understand() {
  lines=0 cards=0 free='' total='' odd='' said='' code=''
  while [ -z "$code" ] && IFS= read -r line; do
    lines=$((lines + 1))
    case $line in
    =said*) said=${line#=said } ;;
    =answered*) code=${line#* } ;;
    WARNING:*) ;; # of a worn board; the figures stand
    *[![:space:]]*)
      if ! parse "$line"; then
        odd=${odd:-$line}
      elif [ "$cards" = "${CARD:-0}" ]; then
        free=$this_free total=$this_total
      fi
      cards=$((cards + 1))
      ;;
    esac
    [ "$lines" -lt "$MOST_LINES" ] || code=${code:-endless}
  done
  words=$(printf '%.200s' "${odd:-$said}" | tr -d '\000-\037\177')
  case $code in
  0) ;;
  late | '') echo "unknown $SOURCE does not answer" && return ;;
  endless) echo "unknown $SOURCE says more than $MOST_LINES lines${words:+: $words}" && return ;;
  *) echo "unknown $SOURCE fails with exit code $code${words:+: $words}" && return ;;
  esac
  if [ -n "$odd" ] || [ "$cards" = 0 ]; then
    echo "unknown $SOURCE says${words:+:} ${words:-nothing}"
  elif [ "$cards" -gt 1 ] && [ -z "$CARD" ]; then
    echo "unknown there are $cards cards, and CUDA_VISIBLE_DEVICES does not name one for certain (its UUID does)"
  elif [ -z "$free" ]; then
    echo "unknown there is no card $CARD, which CUDA_VISIBLE_DEVICES names"
  else
    echo "$free $total"
  fi
}

look() { # LIMIT
  ask_for_memory "$1" | understand
}

# The engines that a preflight let through, a line for each: PID:MODEL:MIB:card, or :none when it has no part of a card.
# shellcheck disable=SC2016
readonly ENGINES='
  grep -aos "CORRAL_SEAT=[a-z0-9.-]*:[0-9]*" /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid seat; do
    grep -qs -e /dev/nvidia -e /libcuda.so "/proc/$pid/maps" && part=card || part=none
    echo "seat $pid:${seat#*=}:$part"
  done'

# Who has the MIB that are taken, for people.  What nvidia-smi says of a process is what it holds.  A seat is what an
# engine may take, no more: it can be on another card, or on none.
holders() { # MIB
  {
    ask "$GLANCE" sh -c "$ENGINES"
    if [ "$SOURCE" = nvidia-smi ]; then
      set -- "${UUID:-$CARD}"
      ask "$NAMES" \
        nvidia-smi --query-compute-apps=pid,used_memory,process_name --format=csv,noheader,nounits ${1:+"--id=$1"}
    fi
    echo "=end"
  } | {
    rest=$1 held='' seats='' seated='' known=' '
    while IFS= read -r line && [ "$line" != "=end" ]; do
      case $line in
      =*) ;;
      "seat "*) seats="$seats ${line#seat }" ;;
      *,*,*) # PID, MIB, /PATH/TO/PROGRAM
        pid=${line%%,*} name=${line#*,*,} mib=${line#*,}
        strip "${mib%%,*}" && mib=$stripped
        strip "${name##*/}" && name=$stripped
        case $seats in *" $pid:"*) name=${seats##*" $pid:"} && name=${name%%:*} ;; esac
        held="$held, $name (pid $pid, $mib MiB)" known="$known$pid "
        ! is_number "$mib" || rest=$((rest - mib))
        ;;
      esac
    done
    for seat in $seats; do
      pid=${seat%%:*} part=${seat##*:} seat=${seat%:*}
      model=${seat#*:} mib=${seat##*:}
      model=${model%:*}
      case $known in *" $pid "*) continue ;; esac
      seated="$seated, $model (pid $pid, seat of $mib MiB"
      if [ "$part" = none ]; then seated="$seated, nothing on the card)"; else seated="$seated)"; fi
      [ "$part" = none ] || ! is_number "$mib" || rest=$((rest - mib))
    done
    held=${held:+"; held by ${held#, }"}${seated:+"; seated: ${seated#, }"}
    if [ -z "$held" ]; then
      held="; held by nobody who can be seen from here"
    elif [ "$rest" -gt 0 ]; then
      held="$held, and $rest MiB by nobody who can be seen from here"
    fi
    printf '%s' "${held#; }" | tr -d '\000-\037\177'
  }
}

# Whether what was seen is enough; unknown is no reason to refuse.
has_room() {
  case $seen in
  unknown*) ;;
  *) [ "${seen%% *}" -ge "$need" ] ;;
  esac
}

for stream in 0 1 2; do # the next pipe would take the place of one that is closed
  eval "true 9>&$stream" 2>/dev/null || eval "exec $stream<>/dev/null"
done
clock
begun=$now

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

if ! can_run "$1"; then
  no_engine "$1"
  exit "$NO_PROGRAM"
fi

SOURCE=nvidia-smi CARD='' UUID=''
[ -z "${CORRAL_VRAM_SOURCE-}" ] || SOURCE=CORRAL_VRAM_SOURCE
case ${CUDA_VISIBLE_DEVICES-} in
GPU-*,*) ;;
GPU-*) UUID=$CUDA_VISIBLE_DEVICES ;;
*[!0-9]* | '') ;;
*) [ "${CUDA_DEVICE_ORDER-}" != PCI_BUS_ID ] || CARD=$CUDA_VISIBLE_DEVICES ;; # CUDA's own order is another one
esac
while :; do # CUDA reads 00 as 0
  case $CARD in
  0?*) CARD=${CARD#0} ;;
  *) break ;;
  esac
done

case ${CUDA_VISIBLE_DEVICES-all} in
'' | -*) seen="unknown CUDA_VISIBLE_DEVICES hides every card" ;;
*)
  if [ "$SOURCE" = nvidia-smi ] && ! can_run nvidia-smi; then
    seen="unknown nvidia-smi is not installed"
  else
    seen=$(look "$LATE")
    seen=${seen:-"unknown $SOURCE cannot be asked"}
  fi
  ;;
esac

clock
if ! has_room && [ $((now - begun)) -lt "$QUICK" ]; then
  sleep "$SETTLE"
  again=$(look "$SECOND_LOOK")
  case $again in
  unknown* | '') ;; # the first answer stands
  *) seen=$again ;;
  esac
fi

free=${seen% *} total=${seen#* }
if ! has_room; then
  short="no room for $model: it needs $need MiB, $free MiB of $total MiB are free"
  if [ "$need" -gt "$total" ]; then
    say "$short; the card has only $total MiB in all. See what fits: corral seat"
  else
    say "$short; $(holders $((total - free))). Unload what is not needed, or see what fits: corral seat"
  fi
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
trap 'no_engine "$1"' EXIT        # only when there is no engine to become, its interpreter missing perhaps
exec "$@"

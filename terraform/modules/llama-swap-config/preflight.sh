#!/bin/sh
# Runs before a llama-server and compares the free memory of its card with its need, before anything is loaded:
#
#   preflight.sh --model ID --need-mib N -- llama-server …
#
# With room, or with the memory unknown, it becomes the engine (exec: same pid, signals reach it); without room it ends
# with exit code 75.  It decides within a second, even if the source hangs, and writes records to stderr, one a line:
#
#   preflight: room|no-room|memory-unknown|no-engine|usage KEY=VALUE …: SENTENCE
#
# Programs read the code and the fields, people the sentence.  The records of holders.sh follow no-room, if that file is
# beside this one.  Before an engine is started, page-cache follows, where it is known.  The source is nvidia-smi, or the
# command in CORRAL_VRAM_SOURCE: a line "free, total" in MiB for each card.  Of several cards CUDA_VISIBLE_DEVICES must
# name one unambiguously.  Nothing is written to disk.

set -uf

record() { printf 'preflight: %s: %s\n' "$1" "$2" >&2; } # CODE-AND-FIELDS SENTENCE
is_number() { case $1 in '' | *[!0-9]* | 0?* | ??????????*) return 1 ;; esac; } # a leading zero would mean octal
usage() { record usage "$1; usage: preflight.sh --model ID --need-mib N -- llama-server …" && exit 64; } # EX_USAGE

no_engine() { # PROGRAM
  program=$(printf '%s' "$1" | tr '[:space:]:' _ | tr -d '\000-\037\177')
  record "no-engine model=$model program=$program" "$program, the engine of $model, is missing or not executable"
  exit 127 # as a shell would
}

can_run() ( # PROGRAM, found as exec finds it: `command -v` also finds what is not executable, and functions
  case $1 in */*) folders=${1%/*}/ IFS='' ;; *) folders=${PATH-} IFS=: ;; esac
  for folder in $folders; do [ -f "${folder:-.}/${1##*/}" ] && [ -x "${folder:-.}/${1##*/}" ] && exit; done
  exit 1
)

clock() { # sets now, in hundredths of a second; 0 without such a clock
  { read -r now _ </proc/uptime && now=${now%.*}${now#*.}; } 2>/dev/null || now=0
}

# ask LIMIT COMMAND…: prints its output, then the lines "=error FIRST-LINE-OF-STDERR" and "=answered CODE"; the code is
# 124 after LIMIT seconds.  Readers stop at these marks and not at the end of the pipe, which a process that cannot be
# killed (a hung driver) holds open, and nothing waits for the command itself.  timeout(1) does not work here: that of
# busybox counts in whole seconds, and would wait for such a process.
# shellcheck disable=SC2016 # for another shell
readonly RUN='"$@" 2>&1 >&3 3>&-; printf "\n=answered %s\n" "$?"; kill "$0"'
command -v setsid >/dev/null && group=setsid || group='' # the processes that a script has started end with it
ask() {
  {
    {
      sleep "$1" 3>&- & timer=$! && shift
      $group sh -c "$RUN" "$timer" "$@" & runner=$!
      if wait "$timer"; then # not killed: the command has not answered
        kill -9 "-$runner" || kill -9 "$runner"
        printf '\n=answered 124\n'
      fi
      wait "$runner"
    } | {
      IFS= read -r error
      printf '\n=error %.200s\n%s\n' "$error" "$(grep -am1 '^=answered')" >&3
    }
  } 3>&1
} 2>/dev/null

read_memory() { # LIMIT; prints "FREE TOTAL", or "REASON SENTENCE"
  ask "$1" sh -c "$query" | {
    lines=0 cards=0 found='' odd='' error='' code='' IFS=$(printf ', \t\r')
    while [ -z "$code" ] && [ "$lines" -lt 64 ] && IFS= read -r line; do
      lines=$((lines + 1))
      case $line in
      =error*) error=${line#=error } ;;
      =answered*) code=${line#* } ;;
      WARNING:*) ;; # about a worn board; the figures are valid
      *[![:space:]]*)
        # shellcheck disable=SC2086 # split on purpose
        set -- $line
        [ "$cards" != "${card:-0}" ] || found="$1 ${2-}"
        [ "$line" != "${line#*,}" ] && [ $# = 2 ] && is_number "$1" && is_number "$2" && [ "$2" != 0 ] &&
          [ "$1" -le "$2" ] || odd=${odd:-$line}
        cards=$((cards + 1))
        ;;
      esac
    done
    words=$(printf '%.200s' "${odd:-$error}" | tr -d '\000-\037\177')
    if [ -z "$code" ] && [ "$lines" = 64 ]; then
      found="unreadable $source prints more than 64 lines${words:+: $words}"
    elif [ "${code:-124}" = 124 ]; then
      found="no-answer $source does not answer"
    elif [ "$code" != 0 ]; then
      found="failed $source fails with exit code $code${words:+: $words}"
    elif [ -n "$odd" ] || [ "$cards" = 0 ]; then
      found="unreadable $source prints${words:+:} ${words:-nothing}"
    elif [ "$cards" -gt 1 ] && [ -z "$card" ]; then
      found="several-cards there are $cards cards, and CUDA_VISIBLE_DEVICES does not name one for certain (its UUID does)"
    fi
    printf '%s\n' "${found:-"no-such-card there is no card $card, which CUDA_VISIBLE_DEVICES names"}"
  }
}

# What of the model's files is in the page cache, before the engine reads any, by fincore (util-linux), if it is installed.
# To those who do not own a file the kernel reports all of it (mm/mincore.c), and such a figure is none.
# shellcheck disable=SC2016 # for another shell
readonly CACHED='for file in "$0"/*.gguf; do [ -O "$file" ] || exit; done
exec fincore --bytes --noheadings --raw --output RES,SIZE "$0"/*.gguf'
page_cache() { # ENGINE WORD…
  folder='' last=''
  for word; do
    case $last in -m | --model) folder=${word%/*} ;; esac
    last=$word
  done
  [ -n "$folder" ] && can_run fincore || return
  ask 0.3 sh -c "$CACHED" "$folder" | {
    cached=0 size=0 code=''
    while [ -z "$code" ] && read -r first second; do
      case $first in
      [0-9]*) cached=$((cached + first)) size=$((size + second)) ;;
      =answered) code=$second ;;
      esac
    done
    [ "$size" = 0 ] || [ "$code" != 0 ] || record "page-cache model=$model cached_bytes=$cached size_bytes=$size" \
      "$((cached >> 20)) of $((size >> 20)) MiB of $model are in the page cache"
  }
}

for stream in 0 1 2; do # otherwise the next pipe would reuse the number of a closed stream
  eval "true 9>&$stream" 2>/dev/null || eval "exec $stream<>/dev/null"
done
clock && begun=$now # the slowest refusal with holders takes 0.85 s

[ $# -gt 5 ] && [ "$1 $3 $5" = "--model --need-mib --" ] || usage "the arguments are not those"
model=$2 need=$4 && shift 5
case $model in '' | *[![:graph:]]* | *:*) usage "--model is no id: it is empty, or has a blank or a colon" ;; esac
is_number "$need" || usage "--need-mib is '$need', not a number of MiB"
can_run "$1" || no_engine "$1"

memory='' card='' uuid=''
case ${CUDA_VISIBLE_DEVICES-,} in
'' | -*) memory="hidden CUDA_VISIBLE_DEVICES hides every card" ;;
*[!0-9A-Za-z-]*) ;; # more than one, or not set
GPU-*) uuid=$CUDA_VISIBLE_DEVICES ;;
*[!0-9]*) ;;
*) [ "${CUDA_DEVICE_ORDER-}" != PCI_BUS_ID ] || card=$CUDA_VISIBLE_DEVICES ;; # CUDA's own order differs
esac
while [ "$card" != "${card#0?}" ]; do card=${card#0}; done # CUDA reads 00 as 0
source=nvidia-smi
query="nvidia-smi --query-gpu=memory.free,memory.total --format=csv,noheader,nounits${uuid:+ --id=$uuid}"
[ -z "${CORRAL_VRAM_SOURCE-}" ] || source=CORRAL_VRAM_SOURCE query=$CORRAL_VRAM_SOURCE
[ "$source" != nvidia-smi ] || can_run nvidia-smi || memory=${memory:-not-installed nvidia-smi is not installed}
memory=${memory:-$(read_memory 0.6)} # no more than 0.6 s
clock
if [ "${memory% *}" -lt "$need" ] 2>/dev/null && [ $((now - begun)) -lt 25 ]; then # there is time for a second reading:
  sleep 0.1 # the driver frees the memory of a process a moment after its end
  again=$(read_memory 0.2)
  case $again in [0-9]*) memory=$again ;; esac # otherwise the first answer counts
fi

fields="model=$model need_mib=$need" free=${memory% *} total=${memory#* }
words="$model needs $need MiB, $free MiB of $total MiB are free"
case $memory in
[0-9]*)
  fields="$fields free_mib=$free total_mib=$total"
  [ "$need" -le "$total" ] || words="$words; the card has only $total MiB in all"
  if [ "$free" -lt "$need" ]; then
    record "no-room $fields" "$words. See what fits: corral seat"
    # shellcheck source=/dev/null
    [ "$need" -gt "$total" ] || [ ! -r "${0%/*}/holders.sh" ] || (. "${0%/*}/holders.sh")
    exit 75 # EX_TEMPFAIL
  fi
  record "room $fields" "$words"
  ;;
*) record "memory-unknown $fields reason=${memory%% *}" "$model needs $need MiB: ${memory#* }; the engine tries" ;;
esac

page_cache "$@"

# A crash must not write a core as large as the model.  ulimit -c is not in POSIX, but every sh of a Linux image has it.
# shellcheck disable=SC3045
ulimit -c 0 2>/dev/null
export CORRAL_SEAT="$model:$need" # holders.sh identifies the engine by it
trap 'no_engine "$1"' EXIT        # only if exec fails, for example because an interpreter is missing
exec "$@"

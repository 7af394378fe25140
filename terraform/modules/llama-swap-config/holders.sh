# shellcheck shell=sh disable=SC2154 # the variables are those of preflight.sh
# Reports the processes that hold the memory of the card.  preflight.sh reads this file only after it has refused a load;
# the file uses that script's `ask` and `is_number`.  Records on stderr, one a line:
#
#   preflight: holder for=MODEL pid=N held_mib=N name=NAME: SENTENCE        a process that nvidia-smi lists
#   preflight: seat for=MODEL pid=N seat_mib=N model=ID on_card=yes|no: …   an engine that it does not list
#   preflight: unattributed for=MODEL held_mib=N: …                         the rest of the held memory
#
# MODEL is the refused model.  A seat is the most that an engine may take: the engine can be on another card, or (on_card=no)
# on none.  A NAME is a model's id, or a program.  A figure that the driver does not report is omitted.

# Prints a line for each engine that a preflight accepted: seat PID:MODEL:MIB:yes|no
# shellcheck disable=SC2016 # for another shell
readonly SEATS='
  grep -aos "CORRAL_SEAT=[a-z0-9.-]*:[0-9]*" /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid seat; do
    grep -qs -e /dev/nvidia -e /libcuda.so "/proc/$pid/maps" && on_card=yes || on_card=no
    echo "seat $pid:${seat#*=}:$on_card"
  done'

plain() { # TEXT; sets plain to TEXT without control characters and surrounding blanks, and with "_" for field separators
  plain=$(printf '%.200s' "$1" | tr '\t\r:' '  _' | tr -d '\000-\037\177')
  plain=${plain#"${plain%%[! ]*}"}
  plain=$(printf '%s' "${plain%"${plain##*[! ]}"}" | tr ' ' _)
}

list_holders() { # both in parallel: the time is short
  ask 0.25 sh -c "$SEATS" &
  [ "$source" != nvidia-smi ] ||
    ask 0.25 nvidia-smi --query-compute-apps=pid,used_memory,process_name --format=csv,noheader,nounits \
      ${uuid:+"--id=$uuid"} ${card:+"--id=$card"}
  wait
  echo '=end'
}

# shellcheck disable=SC2086 # split on purpose
report_holders() { # reads list_holders
  rest=$((total - free)) seats='|' rows='' listed=' ' newline='
'
  while IFS= read -r line && [ "$line" != =end ]; do
    case $line in
    "seat "*) seats="$seats${line#seat }|" ;;
    *,*,*) rows="$rows$line$newline" ;; # PID, MIB, /PATH/TO/PROGRAM
    esac
  done
  IFS=$newline
  for line in $rows; do
    pid=${line%%,*} mib=${line#*,} name=${line#*,*,} held='' words=''
    is_number "$pid" || continue
    plain "${name##*/}" && name=${plain:-unknown}
    case $seats in *"|$pid:"*) name=${seats##*"|$pid:"} && name=${name%%:*} ;; esac
    plain "${mib%%,*}" && mib=$plain
    if is_number "$mib"; then held=" held_mib=$mib" words=", $mib MiB" rest=$((rest - mib)); fi
    listed="$listed$pid "
    record "holder for=$model pid=$pid$held name=$name" "held by $name (pid $pid$words)"
  done
  IFS='|'
  for seat in ${seats#?}; do
    pid=${seat%%:*} on_card=${seat##*:} seat=${seat%:*}
    seated=${seat#*:} mib=${seat##*:}
    seated=${seated%:*}
    case $listed in *" $pid "*) continue ;; esac
    is_number "$mib" && [ -n "$seated" ] || continue
    if [ "$on_card" = yes ]; then words='' rest=$((rest - mib)); else words=', nothing on the card'; fi
    record "seat for=$model pid=$pid seat_mib=$mib model=$seated on_card=$on_card" \
      "seated: $seated (pid $pid, seat of $mib MiB$words)"
  done
  [ "$rest" -le 0 ] ||
    record "unattributed for=$model held_mib=$rest" "$rest MiB are held by processes that are not visible from here"
}

list_holders | report_holders

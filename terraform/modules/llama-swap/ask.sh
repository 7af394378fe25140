#!/bin/sh
# Gets an address of llama-swap.  curl reads the key from stdin: every process of the pod can read a command line.
#
#   ask.sh URL KEY-FILE [OPTION OF CURL …]

set -u

url=$1
key=$2
shift 2
printf 'header = "Authorization: Bearer %s"\n' "$(cat "$key")" | curl --silent --config - "$@" "$url"

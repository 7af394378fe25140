"""Runs an engine and kills it (SIGKILL) at a line of its log: python killed_at.py MARKER ENGINE ARGUMENT...

A stand-in for the kernel's out-of-memory killer, for its timing alone: the engine is the real one, it is the process
that llama-swap started, and the same signal ends it.  Its log after that line is not passed on.  An empty MARKER
kills it before its first line.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Become the engine; a child of it reads its log."""
    marker, engine = sys.argv[1].encode(), sys.argv[2:]
    pid = os.getpid()
    if not marker:
        os.kill(pid, signal.SIGKILL)
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(write)
        with os.fdopen(read, "rb") as log:
            for line in log:
                os.write(2, line)
                if marker in line:
                    os.kill(pid, signal.SIGKILL)
                    break
        os._exit(0)
    os.dup2(write, 1)
    os.dup2(write, 2)
    os.close(read)
    os.close(write)
    os.execv(engine[0], engine)


if __name__ == "__main__":
    main()

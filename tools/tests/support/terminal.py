"""A command with a terminal of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess


def on_a_terminal(words, typed):
    """Run *words* with a terminal of their own, type *typed*; the exit code and all that was shown."""
    master, slave = os.openpty()
    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, close_fds=True)
    os.close(slave)
    os.write(master, typed.encode())
    shown = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while chunk := os.read(master, 4096):
            shown += chunk
    os.close(master)
    return process.wait(), shown.decode()

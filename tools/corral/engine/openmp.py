"""``libgomp.so.1``, GCC's OpenMP runtime, for the embedded engine on a Linux that has none.

The xllamacpp wheel links it and does not carry it. The pykdtree wheel carries one under a name that auditwheel made
unique, in the file's name and in its SONAME alike, so the dynamic linker would not take it for ``libgomp.so.1``.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

from corral.errors import ProgramMissing

SONAME = "libgomp.so.1"
CARRIER = "pykdtree"


def provide() -> None:
    """Load ``libgomp.so.1`` into this process: the system's, else the carried one.  Call it before xllamacpp loads.

    Raises:
        ProgramMissing: neither can be loaded.
    """
    if sys.platform != "linux":  # the wheels of other systems carry theirs
        return
    try:
        ctypes.CDLL(SONAME, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        load_carried()


def load_carried() -> None:
    """Load the carried library as ``libgomp.so.1``: from memory, with that SONAME in the place of its longer one.

    The dynamic linker takes a loaded library for a wanted one when its SONAME is the wanted name.

    Raises:
        ProgramMissing: it is not there or cannot be loaded.
    """
    package = importlib.util.find_spec(CARRIER)
    folders = list(package.submodule_search_locations or ()) if package else []
    files = [file for folder in folders for file in Path(f"{folder}.libs").glob("libgomp-*.so*")]
    try:
        content = files[0].read_bytes()
        unique = os.fsencode(files[0].name) + b"\0"
        memory = os.memfd_create(SONAME)
        with open(memory, "wb", closefd=True) as file:
            file.write(content.replace(unique, SONAME.encode().ljust(len(unique), b"\0")))
            file.flush()
            ctypes.CDLL(f"/proc/self/fd/{memory}", mode=ctypes.RTLD_GLOBAL)
    except (IndexError, OSError) as error:
        message = f"{SONAME}: this system has none, and the one of the {CARRIER} wheel cannot be loaded ({error})."
        step = "apt-get install libgomp1 (Debian, Ubuntu), or the package with GCC's OpenMP runtime elsewhere"
        raise ProgramMissing(f"The embedded engine needs {message}", next_step=step) from None

"""Keep the bytecode of what Python imports from zip archives; it lies in every image, and runs on the hosts.

Ansible sends each module in an archive of its own, so that every task compiles the same sixty files again: more than
half of the processor time that a task takes on a host.
"""

import hashlib
import marshal
import os
import sys
import zipimport

FOLDER = f"/var/cache/zip-bytecode/{sys.implementation.cache_tag}"

_compile_source = zipimport._compile_source


def _from_cache(path, source):
    place = path.partition(".zip")[2].encode()
    kept = f"{FOLDER}/{hashlib.sha256(place + b'|' + source).hexdigest()}"
    try:
        with open(kept, "rb") as file:
            return marshal.load(file)
    except (OSError, EOFError, ValueError):
        code = _compile_source(path, source)
    partial = f"{kept}.{os.urandom(8).hex()}"
    try:
        os.makedirs(FOLDER, exist_ok=True)  # noqa: PTH103 - pathlib is slow to import
        with open(partial, "wb") as file:
            marshal.dump(code, file)
        os.rename(partial, kept)  # noqa: PTH104
    except OSError:
        pass  # a user without write access compiles again
    return code


zipimport._compile_source = _from_cache

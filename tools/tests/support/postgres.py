"""A real PostgreSQL of the tests' own: Debian's programs, a folder, a port on loopback; gone when the test is."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.engine_process import free_port

_UNPRIVILEGED = "nobody"  # PostgreSQL refuses to run as root


def programs() -> Path:
    """The folder with ``initdb`` and ``postgres``; Debian keeps them off PATH, one folder for each version."""
    on_path = shutil.which("initdb")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    assert on_path or found, "PostgreSQL is missing: apt-get install postgresql"
    return Path(on_path).parent if on_path else found[-1]


@contextmanager
def postgres() -> Iterator[str]:
    """A server with an empty database; its connection string."""
    bin_folder, port = programs(), free_port()
    with tempfile.TemporaryDirectory(prefix="corral-postgres-") as data:  # not tmp_path: other users may not read that
        account = {}
        if os.geteuid() == 0:
            account_entry = pwd.getpwnam(_UNPRIVILEGED)
            account = {"user": account_entry.pw_uid, "group": account_entry.pw_gid, "extra_groups": []}
            shutil.chown(data, account_entry.pw_uid, account_entry.pw_gid)

        def run(program: str, *words: str) -> None:
            command = [bin_folder / program, *words, "--pgdata", data]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", **account)
            assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

        run("initdb", "--username", "corral", "--auth", "trust", "--no-sync")
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories= -c fsync=off"
        run("pg_ctl", "start", "--wait", "--log", f"{data}/log", "--options", options)
        try:
            yield f"postgres://corral@127.0.0.1:{port}/postgres?sslmode=disable"
        finally:
            run("pg_ctl", "stop", "--mode", "immediate")

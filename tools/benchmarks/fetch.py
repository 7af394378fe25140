"""Time the agent's download against `curl` and `fsync`, and count what kills and faults cost it.

The same server on loopback serves both; they alternate, and the medians are compared.  Goals: G1 plain HTTP, G2 a
server that caps each connection at 100 MB/s, G3 HTTPS, G4 memory, G5 a memory cgroup, G8 kills, G9 faults.  The agent's
time begins with the start of Python and ends when the file is hashed, durable and linked; curl's ends with the fsync.

    python tools/benchmarks/fetch.py [--small] [--only G1 G2] [--rounds 7] [--size 2048] [--folder DIR]

`--small` takes less than a minute: small files, two rounds, and half of each ratio is enough.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent / "fetch_support")]

import faults  # noqa: E402
from measure import MB, Usage, memory_limit, run  # noqa: E402

MIB = 1 << 20
SERVER = Path(__file__).parent / "fetch_support" / "server.py"
CONNECTION_CAP = 100 * MB


@dataclass(frozen=True)
class Row:
    """One goal; *met* is None when it could not be measured here."""

    goal: str
    what: str
    measured: str
    required: str
    met: bool | None


@dataclass
class Bench:
    """Folder and size of the runs."""

    folder: Path
    size: int
    rounds: int
    small: bool
    rss: float = 0.0
    dirty: float = 0.0

    def ratio(self, full: float) -> float:
        """The part of each ratio that is required; small files on a busy machine reach half."""
        return full / 2 if self.small else full

    def source(self, size: int) -> Path:
        """A file of *size* random bytes."""
        path = self.folder / f"source-{size}"
        if not path.exists():
            with path.open("wb") as file:
                for _ in range(size // MIB):
                    file.write(os.urandom(MIB))
        return path

    @contextlib.contextmanager
    def serve(self, size: int, *options: str) -> Iterator[Served]:
        """A file of *size* bytes, served by a process of its own."""
        path = self.source(size)
        command = [sys.executable, str(SERVER), str(path), *options]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin
            assert process.stdout
            port = int(process.stdout.readline())
            yield Served(self, path, port, "https" if "--tls" in options else "http")
            process.stdin.close()


@dataclass(frozen=True)
class Served:
    """One served file, and the two ways to get it."""

    bench: Bench
    path: Path
    port: int
    scheme: str

    @property
    def certificate(self) -> Path:
        return self.bench.folder / "certificate.pem"

    @property
    def store(self) -> Path:
        return self.bench.folder / "store"

    @property
    def sent(self) -> int:
        """Bytes of the file that the server has sent so far."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/sent") as answer:
            return int(answer.read())

    def curl(self) -> Usage:
        """Get it with curl, then fsync it."""
        target = self.bench.folder / "curl"
        target.unlink(missing_ok=True)
        os.sync()
        words = f"curl -sSf --cacert {self.certificate} -o {target} {self.scheme}://localhost:{self.port}/data"
        used = run(["sh", "-c", f"{words} && sync {target}"], dict(os.environ))
        target.unlink()
        return used

    def agent(self, *, group: Path | None = None) -> Usage:
        """Get it with the agent into an empty store."""
        shutil.rmtree(self.store, ignore_errors=True)
        os.sync()
        used = run(*self.command(), group=group)
        if used.code == 0:
            assert (self.store / "m" / "model.gguf").stat().st_size == self.path.stat().st_size
            self.bench.rss, self.bench.dirty = max(self.bench.rss, used.rss), max(self.bench.dirty, used.dirty)
        return used

    def command(self) -> tuple[list[str], dict[str, str]]:
        """The command and the environment that start the agent."""
        lock = self.bench.folder / f"lock-{self.path.name}.json"
        if not lock.exists():
            with self.path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            described = {"path": "a.gguf", "role": "model", "size": self.path.stat().st_size, "sha256": digest}
            entry = {"repo": "org/name", "revision": "0" * 40, "files": [described]}
            lock.write_text(json.dumps({"version": 2, "models": {"m": entry}}))
        environment = os.environ | {
            "HF_ENDPOINT": f"{self.scheme}://127.0.0.1:{self.port}",
            "SSL_CERT_FILE": str(self.certificate),
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        words = [sys.executable, "-m", "corral.agent", "fetch", "--lock", str(lock), "--store", str(self.store)]
        return words, environment


def compare(served: Served, goal: str, what: str, required: float) -> Row:
    """Alternate curl and the agent."""
    pairs = [(served.curl().seconds, served.agent().seconds) for _ in range(served.bench.rounds)]
    curl, agent = (statistics.median(column) for column in zip(*pairs, strict=True))
    size = served.path.stat().st_size / MB
    measured = f"{curl / agent:.2f} x curl ({size / agent:.0f} and {size / curl:.0f} MB/s)"
    least = served.bench.ratio(required)
    return Row(goal, what, measured, f">= {least:g} x", curl / agent >= least)


def plain(bench: Bench) -> Iterator[Row]:
    with bench.serve(bench.size) as served:
        yield compare(served, "G1", f"HTTP, {bench.size // MIB} MiB, verified and durable", 1.0)


def capped(bench: Bench) -> Iterator[Row]:
    size = min(bench.size, 512 * MIB)
    with bench.serve(size, "--rate", str(CONNECTION_CAP)) as served:
        yield compare(served, "G2", f"HTTP, 100 MB/s a connection, {size // MIB} MiB", 4.0)


def encrypted(bench: Bench) -> Iterator[Row]:
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    key = bench.folder / "key.pem"
    with bench.serve(bench.size, "--tls", str(make_certificate(bench.folder, key, names)), str(key)) as served:
        yield compare(served, "G3", f"HTTPS, {bench.size // MIB} MiB, {os.cpu_count()} cores", 0.6)


def make_certificate(folder: Path, key: Path, names: str) -> Path:
    """A self-signed certificate for *names*."""
    certificate = folder / "certificate.pem"
    words = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext {names}"
    subprocess.run([*words.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate


def memory(bench: Bench) -> Iterator[Row]:
    """A download in a small cgroup, and the peaks of this and all earlier runs."""
    size = bench.size * (1 if bench.small else 2)
    with bench.serve(size) as served, memory_limit(128 << 20) as group:
        code = served.agent(group=group).code if group else None
        if not group:
            served.agent()
    bench.source(size).unlink()
    shutil.rmtree(bench.folder / "store")
    yield Row("G4", "peak RSS of all runs", f"{bench.rss:.0f} MB", "<= 64 MB", bench.rss <= 64)
    what = f"{size // MIB} MiB in a 128 MiB memory cgroup"
    if code is None:
        yield Row("G5", what, "not shown: no cgroup can be made here", "completes", None)
    else:
        yield Row("G5", what, "completed" if code == 0 else f"killed ({code})", "completes", code == 0)
    yield Row("G5", "most dirty pages of all runs", f"{bench.dirty:.0f} MB", "<= 256 MB", bench.dirty <= 256)


def killed(bench: Bench) -> Iterator[Row]:
    """Three SIGKILLs and a SIGTERM at random points, then a run to the end."""
    rate = (1.5 if bench.small else 50) * MB
    size = 64 * MIB if bench.small else bench.size
    with bench.serve(size, "--rate", str(rate)) as served:
        shutil.rmtree(served.store, ignore_errors=True)
        words, environment = served.command()
        most = slowest = 0.0
        points = sorted(random.uniform(0.05, 0.95) for _ in range(4))  # noqa: S311
        for at, kill in zip(points, (9, 9, 9, 15), strict=True):
            with subprocess.Popen(
                words, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            ) as agent:
                while agent.poll() is None and served.sent < at * size:
                    time.sleep(0.01)
                began = time.monotonic()
                agent.send_signal(kill)
                agent.wait()
                slowest = max(slowest, time.monotonic() - began)
            most = max(most, disk_use(served.store))
        run(words, environment)
        most = max(most, disk_use(served.store))
        ratio = served.sent / size
        left = [path.name for path in (served.store / ".corral" / "partials").iterdir()]
        ended = disk_use(served.store) / size
    tidy = not left and ended <= 1.01 and most / size <= 2.01
    yield Row("G8", "bytes sent, 3 SIGKILL and 1 SIGTERM", f"{ratio:.3f} x the file", "<= 1.1 x", ratio <= 1.1)
    yield Row("G8", "left behind; disk at the end", f"{len(left)} files; {ended:.2f} x", "0; 1 x", tidy)
    yield Row("G8", "slowest end after a signal", f"{slowest:.2f} s", "<= 2 s", slowest <= 2)


def disk_use(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def troubled(bench: Bench) -> Iterator[Row]:
    for name, survived, seconds, limit in faults.run_all(bench.folder, small=bench.small):
        yield Row(
            "G9", name, f"{'survived' if survived else 'NOT survived'}, {seconds:.1f} s", f"<= {limit:g} s", survived
        )


GOALS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "G1": plain,
    "G2": capped,
    "G3": encrypted,
    "G4": memory,
    "G8": killed,
    "G9": troubled,
}


def main() -> int:
    """Print a line for each goal; return 1 when one is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", nargs="+", choices=GOALS, default=list(GOALS), help="G4 stands for G4 and G5")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--size", type=int, help="MiB")
    parser.add_argument("--folder", type=Path, help="on the disk to measure (default: the temporary folder)")
    args = parser.parse_args()
    rounds = args.rounds or (2 if args.small else 7)
    size = (args.size or (192 if args.small else 2048)) * MIB

    curl = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")
    print(f"Python {platform.python_version()}, curl {curl}, median of {rounds}")
    missed = 0
    with tempfile.TemporaryDirectory(prefix="corral-fetch-", dir=args.folder) as scratch:
        bench = Bench(Path(scratch), size, rounds, args.small)
        make_certificate(bench.folder, bench.folder / "key.pem", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        for goal in args.only:
            for row in GOALS[goal](bench):
                verdict = "not shown" if row.met is None else "met" if row.met else "MISSED"
                missed += row.met is False
                print(f"{row.goal}  {row.what:44} {row.measured:40} {row.required:10} {verdict}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Prometheus and Alertmanager as programs of this machine, and a receiver of what they notify."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from corral.engine import engine_process
from corral.errors import CannotRun

_ALERTMANAGERS = ("alertmanager", "prometheus-alertmanager")  # upstream's name, and Debian's
_START_LIMIT_S, _END_LIMIT_S = 60.0, 20.0


class Programs(NamedTuple):
    """The two programs, as paths."""

    prometheus: str
    alertmanager: str


@dataclass(frozen=True)
class Notification:
    """What Alertmanager sent about one alert; its status is firing or resolved."""

    status: str
    labels: dict[str, str] = field(hash=False)
    annotations: dict[str, str] = field(hash=False)
    at: float = 0.0
    """When it arrived, by time.monotonic."""

    @property
    def name(self) -> str:
        """The alert's."""
        return self.labels["alertname"]


class Receiver:
    """Every notification of the Alertmanager at the URL ``alertmanager``, in order; ``prometheus``: of its source."""

    def __init__(self) -> None:
        self.alertmanager = self.prometheus = ""
        self.all: list[Notification] = []
        self._changed = threading.Condition()

    def add(self, document: dict[str, Any]) -> None:
        """Take a message of Alertmanager's webhook."""
        with self._changed:
            now, alerts = time.monotonic(), document["alerts"]
            self.all += [Notification(one["status"], one["labels"], one["annotations"], now) for one in alerts]
            self._changed.notify_all()

    def first(self, wanted: Callable[[Notification], bool], *, limit_s: float, after: int = 0) -> Notification | None:
        """The first notification that is *wanted*; None: there is none, and none comes within *limit_s* seconds.

        The first *after* notifications do not count.
        """
        with self._changed:
            self._changed.wait_for(lambda: any(map(wanted, self.all[after:])), timeout=limit_s)
            return next(filter(wanted, self.all[after:]), None)


def installed() -> Programs | None:
    """The programs of this machine; None where one of them is missing."""
    prometheus = shutil.which("prometheus")
    alertmanager = next((path for name in _ALERTMANAGERS if (path := shutil.which(name))), None)
    return Programs(prometheus, alertmanager) if prometheus and alertmanager else None


@contextmanager
def monitoring(
    folder: Path, targets: Sequence[str], rules: str, inhibit_rules: str, programs: Programs, *, every_s: int
) -> Iterator[Receiver]:
    """Prometheus scrapes *targets* (HOST:PORT) every *every_s* seconds and evaluates *rules* (YAML).

    Alertmanager, with *inhibit_rules* (YAML), notifies the receiver.  Both run in *folder* until the block ends.
    """
    with ExitStack() as stack:
        receiver = Receiver()
        hook = stack.enter_context(_hook(receiver))
        route = {"receiver": "hook", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
        receivers = [{"name": "hook", "webhook_configs": [{"url": hook, "send_resolved": True}]}]
        _write(folder / "alertmanager.yml", {"route": route, "receivers": receivers} | yaml.safe_load(inhibit_rules))
        options = (f"--storage.path={folder}/a", "--cluster.listen-address=")
        address = stack.enter_context(_running(folder / "alertmanager", programs.alertmanager, *options))
        receiver.alertmanager = f"http://{address}"
        (folder / "rules.yml").write_text(rules, encoding="utf-8")
        every = f"{every_s}s"
        settings = {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": [str(folder / "rules.yml")],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [address]}]}]},
            "scrape_configs": [{"job_name": "cards", "static_configs": [{"targets": list(targets)}]}],
        }
        _write(folder / "prometheus.yml", settings)
        storage = f"--storage.tsdb.path={folder}/p"
        address = stack.enter_context(_running(folder / "prometheus", programs.prometheus, storage))
        receiver.prometheus = f"http://{address}"
        yield receiver


@contextmanager
def _running(name: Path, program: str, *options: str) -> Iterator[str]:
    """A program with the configuration *name*.yml and the log *name*.log, and the HOST:PORT where it listens.

    The port is chosen by the program: one that is free now may be taken a moment later.
    """
    words = (program, f"--config.file={name}.yml", "--web.listen-address=127.0.0.1:0", *options)
    log = name.with_suffix(".log")
    with log.open("w") as out, subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            yield f"127.0.0.1:{_port(process, log)}"
            if process.poll() is not None:
                raise _ended(process, log)
        finally:
            process.terminate()
            try:
                process.wait(_END_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + _START_LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        for port, pids in engine_process.listeners().items():
            if process.pid in pids:
                return port
        time.sleep(0.05)
    raise _ended(process, log)


def _ended(process: subprocess.Popen[bytes], log: Path) -> CannotRun:
    assert isinstance(process.args, tuple)
    program, code = str(process.args[0]), process.poll()
    what = (
        f"ended by itself, with exit code {code}" if code is not None else f"has no port after {_START_LIMIT_S:.0f} s"
    )
    return CannotRun(f"{program} {what}: {_last_line(log)}", next_step=f"{shlex.quote(program)} --version")


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:500] if lines else "it printed nothing"


@contextmanager
def _hook(receiver: Receiver) -> Iterator[str]:
    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.add(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def _write(file: Path, document: dict[str, Any]) -> None:
    file.write_text(yaml.safe_dump(document), encoding="utf-8")

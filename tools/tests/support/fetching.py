"""One model on a faulty hub, and a store to fetch it into."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from corral.agent import hub_client
from corral.agent.fetch import fetch
from corral.agent.lock_file import read_lock
from corral.agent.progress import Event, Finished
from corral.agent.scheduling import TransferSettings
from corral.agent.store import Store
from tests.support.faulty_hub import FaultyHub, Quota, RepoContent
from tests.support.locks import hub_model, write_lock

REPO = "org/name"
MIB = 1 << 20
IMPATIENT = TransferSettings(give_up_after=1.5, max_pause=0.1)


def weights(size: int, seed: int = 1) -> bytes:
    """*size* bytes that no two places share; the same for the same *seed*."""
    return random.Random(seed).randbytes(size)


@dataclass
class Shop:
    """The model ``m`` (a.gguf of org/name), its hub and its store.

    Its settings retry soon and give up late, so that a fault that passes is survived on a busy machine too; a test of
    an endless fault takes ``IMPATIENT``.
    """

    hub: FaultyHub
    folder: Path
    content: bytes
    settings: TransferSettings = field(default_factory=lambda: TransferSettings(give_up_after=60, max_pause=0.1))
    events: list[Event] = field(default_factory=list)

    @property
    def store(self) -> Store:
        """Of the fetches."""
        return Store(self.folder / "store")

    @property
    def published(self) -> Path:
        """What a server opens."""
        return self.store.root / "m" / "model.gguf"

    @property
    def client(self) -> hub_client.Hub:
        """The hub as the agent knows it."""
        return hub_client.Hub(self.hub.endpoint)

    @property
    def lock(self) -> Path:
        """The lock of what the hub has on main now."""
        return write_lock(self.folder, m=hub_model(self.hub, REPO, "a.gguf"))

    def fetch(self, *, on_event: Callable[[Event], None] = lambda _event: None, **how: object) -> Finished:
        """Fetch in this process; *how* is passed to ``fetch``, ``token`` and ``timeout`` to the hub's client."""
        client = {key: how.pop(key) for key in ("token", "timeout") if key in how}

        def report(event: Event) -> None:
            self.events.append(event)
            on_event(event)

        how.setdefault("hub", hub_client.Hub(self.hub.endpoint, **client))
        how.setdefault("settings", self.settings)
        return fetch(read_lock(self.lock), self.store, report=report, **how)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Fetch in a process of its own."""
        command = [sys.executable, "-m", "corral.agent", "fetch", "--lock", str(self.lock)]
        return subprocess.Popen(
            [*command, "--store", str(self.store.root), *words],
            env={**os.environ, "HF_ENDPOINT": self.hub.endpoint},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill_after(self, sent: int, *, by: int = signal.SIGKILL) -> int:
        """Fetch in a process that gets the signal *by* once the hub has sent *sent* bytes; its exit code."""
        quota = Quota(size=sent)
        self.hub.faults = [quota]
        with self.start() as process:
            assert quota.used_up.wait(60), "the process did not ask for so much"
            process.send_signal(by)
            try:
                process.communicate(timeout=60)
            finally:
                quota.until.set()
                self.hub.faults = []
            return process.returncode

    def leftovers(self) -> list[str]:
        """What downloads have left behind beside the blobs."""
        folders = (self.store.partials, self.store.leases)
        return [entry.name for folder in folders for entry in folder.iterdir() if entry.name != "clock"]


@contextmanager
def shop(folder: Path, *, size: int = 4 * MIB, token: str | None = None) -> Iterator[Shop]:
    """A shop whose hub serves until the end of the block."""
    content = weights(size)
    with FaultyHub({REPO: RepoContent({"a.gguf": content}, token=token)}) as hub:
        yield Shop(hub, folder, content)

"""Reads the header of a locked GGUF file, and no more of it: from the hub by ranges, or from disk.

A header is 20 KB for a projector and some 10 MB for a model, nearly all of it tokenizer, and its length is unknown
until it was read.  So the reader requests what must be there at least, and a little more each time; no byte is
requested twice.
"""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from corral.agent.hub_client import Hub, HubFile, RangeResponse, RetryableError
from corral.agent.lock_file import LockedFile
from corral.agent.scheduling import RetryBudget, TransferSettings
from corral.errors import CorralError, Failed, HubUnavailable, HubUnreachable, Refused, UnreadableHeader
from corral.hub.resolved import Resolved
from corral.vram.gguf_header import GgufHeader, HeaderIncomplete, parse

FIRST_BYTES = 256 << 10
"""All of a projector's header, and the hyperparameters of any model."""
STEP_BYTES = 1 << 20
"""Requested where nothing better is known: the most that may be read in vain."""
MOST_BYTES = 128 << 20
"""Ten times the largest header of today."""

_READ_BYTES = 256 << 10
_MB = 1_000_000


def read_headers(
    model_id: str,
    resolved: Resolved,
    catalog: Path,
    *,
    say: Callable[[str], None],
    settings: TransferSettings | None = None,
) -> list[GgufHeader]:
    """The headers of all files of a model, in their order.

    Args:
        model_id: for messages.
        resolved: the files, and the commit of the hub that they are from.
        catalog: what the path of a file on disk starts from.
        say: receives a line for each file and each retry.
        settings: how long to retry; only the times count.

    Raises:
        UnreadableHeader: a file is no GGUF that this corral reads, or its header is absurdly long.
        Refused: a file has another size than the locked one, or the hub does not give it.
        HubUnreachable: no connection to the hub, or to the host that it redirects to.
        HubUnavailable: the hub did not send the header within the time limits of *settings*.
    """
    if resolved.repo is None or resolved.revision is None:
        return [_on_disk(catalog / file.path, file) for file in resolved.files]
    hub = Hub.from_environment()
    headers = []
    for file in resolved.files:
        name = f"{model_id}: {file.name}"
        say(f"{name}: reading the header")
        source = hub.file(resolved.repo, resolved.revision, file.path)
        front = _Front(
            hub.endpoint, source, file, name, say, RetryBudget(settings or TransferSettings(), hub.budgets.least_rate)
        )
        try:
            headers.append(_grow(front.up_to, file, name))
        finally:
            front.close()
            source.abort()
        say(f"{name}: {len(front.data) / _MB:.1f} MB of {file.size / _MB:,.1f} MB read")
    return headers


def _on_disk(path: Path, file: LockedFile) -> GgufHeader:
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            if size != file.size:
                raise Refused(f"{path} has {size:,} bytes, and was locked with {file.size:,}.", next_step="corral lock")
            data = bytearray()

            def up_to(end: int) -> bytearray:
                stream.seek(len(data))
                data.extend(stream.read(end - len(data)))
                return data

            return _grow(up_to, file, str(path))
    except OSError as error:
        raise Refused(
            f"{path} cannot be read: {error.strerror}.", next_step=f"ls -l {shlex.quote(str(path))}"
        ) from None


def _grow(up_to: Callable[[int], bytearray], file: LockedFile, name: str) -> GgufHeader:
    """Parse longer and longer beginnings of *file* until one holds the header."""
    wanted = min(FIRST_BYTES, file.size)
    skipped: dict[int, tuple[int, int]] = {}
    while True:
        data = up_to(wanted)
        try:
            return parse(data, file_size=file.size, skipped=skipped)
        except HeaderIncomplete as error:
            if error.needed_at_least > MOST_BYTES:
                raise UnreadableHeader(
                    f"{name}: its header claims to have at least {error.needed_at_least:,} bytes, "
                    f"and {MOST_BYTES:,} is the most that is read.",
                    next_step="Use another file: no known model has a header of that size",
                ) from None
            wanted = min(max(error.needed_at_least, len(data) + STEP_BYTES), file.size)
        except UnreadableHeader as error:
            raise UnreadableHeader(f"{name}: {error.message}", next_step=error.next_step) from None


@dataclass
class _Front:
    """The front of a file of the hub, as far as it was requested."""

    endpoint: str
    source: HubFile
    file: LockedFile
    name: str
    say: Callable[[str], None]
    budget: RetryBudget
    data: bytearray = field(default_factory=bytearray)
    _body: RangeResponse | None = None
    _at: int = 0  # where the body is in the file

    def up_to(self, end: int) -> bytearray:
        """At least the first *end* bytes."""
        failures = 0
        while len(self.data) < end:
            before = len(self.data)
            try:
                self._receive(end)
            except RetryableError as error:
                self.close()
                failures = 1 if len(self.data) > before else failures + 1
                self._pause(error, failures)
        return self.data

    def close(self) -> None:
        """Give the connection back."""
        if self._body is not None:
            self._body.close()
            self._body = None

    def _receive(self, end: int) -> None:
        start = len(self.data)
        body = self._body or self._open(start, end)
        buffer = memoryview(bytearray(_READ_BYTES))
        while len(self.data) < end:
            count = body.readinto(buffer[: end - self._at])
            if not count:
                raise RetryableError("the connection ended early")
            self.data += buffer[max(0, len(self.data) - self._at) : count]
            self._at += count
            self.budget.received(count)
            if failure := self.budget.too_slow():
                raise failure
        if body.start == start:  # else the hub ignores ranges, and this body goes on to the end of the file
            self.close()

    def _open(self, start: int, end: int) -> RangeResponse:
        self._body = body = self.source.open(start, end)
        self._at = body.start
        if body.total is not None and body.total != self.file.size:
            raise Refused(
                f"{self.name} has {body.total:,} bytes on the hub, and was locked with {self.file.size:,}.",
                next_step="corral lock --upgrade",
            )
        return body

    def _pause(self, failure: RetryableError, failures: int) -> None:
        if not self.data and isinstance(failure.__cause__, socket.gaierror | ConnectionRefusedError):
            raise HubUnreachable(self.endpoint, failure.reason) from None
        try:
            wait = self.budget.pause_after(failure, failures)
        except Failed as error:
            raise Refused(f"{self.name}: {error.message}.", next_step="corral lock --upgrade") from None
        except CorralError as error:
            raise HubUnavailable(
                f"{self.name}: its header could not be read: {error.message}.",
                next_step="Check the network and HF_ENDPOINT, then: corral lock",
            ) from None
        if wait:
            self.say(f"{self.name}: {failure.reason}; trying again in {wait:.1f} s")
            time.sleep(wait)

"""Reads the header of a locked GGUF file, and no more of it: from the hub by ranges, or from disk.

A header is 20 KB for a projector and some 10 MB for a model, nearly all of it tokenizer, and its length is unknown
until it was read.  So this requests what must be there at least, and a little more each time; no byte is requested
twice.  The bytes go to a confined process as they arrive (``corral.vram.header_reader``).
"""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from corral.agent.hub_client import Hub, HubFile, RangeResponse, RetryableError
from corral.agent.lock_file import LockedFile
from corral.agent.scheduling import RetryBudget, TransferSettings
from corral.errors import CorralError, Failed, HubUnavailable, HubUnreachable, Refused
from corral.hub.resolved import Resolved
from corral.vram.header_reader import HeaderReader

FIRST_BYTES = 256 << 10
"""All of a projector's header, and the hyperparameters of any model."""
STEP_BYTES = 1 << 20
"""Requested where nothing better is known: the most that may be read in vain."""

_READ_BYTES = 256 << 10
_MB = 1_000_000


def read_headers(
    model_id: str,
    resolved: Resolved,
    catalog: Path,
    *,
    say: Callable[[str], None],
    settings: TransferSettings | None = None,
) -> list[bytes]:
    """The fixtures (``corral.vram.gguf_header.canonical``) of all files of a model, in their order.

    Args:
        model_id: for messages.
        resolved: the files, and the commit of the hub that they are from.
        catalog: what the path of a file on disk starts from.
        say: receives a line for each file and each retry.
        settings: how long to retry; only the times count.

    Raises:
        UnreadableHeader: a file has no header that this corral reads within the limits.
        Refused: a file has another size than the locked one, or the hub does not give it.
        HubUnreachable: no connection to the hub, or to the host that it redirects to.
        HubUnavailable: the hub did not send the header within the time limits of *settings*.
        CannotRun: the process that reads a header failed.
    """
    if resolved.repo is None or resolved.revision is None:
        return [_on_disk(catalog / file.path, file) for file in resolved.files]
    hub = Hub.from_environment()
    fixtures = []
    for file in resolved.files:
        name = f"{model_id}: {file.name}"
        say(f"{name}: reading the header")
        source = hub.file(file.repo or resolved.repo, file.revision or resolved.revision, file.path)
        front = Front(
            hub.endpoint, source, file, name, say, RetryBudget(settings or TransferSettings(), hub.budgets.least_rate)
        )
        try:
            fixtures.append(_read(front.up_to, file, name))
        finally:
            front.close()
            source.abort()
        say(f"{name}: {front.at / _MB:.1f} MB of {file.size / _MB:,.1f} MB read")
    return fixtures


def _on_disk(path: Path, file: LockedFile) -> bytes:
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            if size != file.size:
                raise Refused(f"{path} has {size:,} bytes, and was locked with {file.size:,}.", next_step="corral lock")
            stream.seek(0)

            def up_to(end: int) -> Iterator[bytes]:
                while (left := end - stream.tell()) > 0:
                    if not (piece := stream.read(min(left, _READ_BYTES))):
                        raise Refused(f"{path} became shorter while it was read.", next_step="corral lock")
                    yield piece

            return _read(up_to, file, str(path))
    except OSError as error:
        raise Refused(
            f"{path} cannot be read: {error.strerror}.", next_step=f"ls -l {shlex.quote(str(path))}"
        ) from None


def _read(up_to: Callable[[int], Iterator[bytes]], file: LockedFile, name: str) -> bytes:
    """The fixture of *file*, of which *up_to* gives what follows its last byte, up to another end."""
    with HeaderReader(name, file.size) as reader:
        end = min(FIRST_BYTES, file.size)
        while True:
            fixture = None
            for piece in up_to(end):  # all of it, so that the connection can be used again
                fixture = fixture or reader.feed(piece)
            if fixture:
                return fixture
            end = min(max(reader.needed_at_least, end + STEP_BYTES), file.size)


@dataclass
class Front:
    """The front of a file of the hub, piece by piece; each byte is requested once."""

    endpoint: str
    source: HubFile
    file: LockedFile
    name: str
    say: Callable[[str], None]
    budget: RetryBudget
    at: int = 0  # bytes that were given
    _body: RangeResponse | None = None
    _body_at: int = 0  # where the body is in the file

    def up_to(self, end: int) -> Iterator[bytes]:
        """The bytes after the last one that was given, up to *end*."""
        failures = 0
        while self.at < end:
            before = self.at
            try:
                yield from self._receive(end)
            except RetryableError as error:
                self.close()
                failures = 1 if self.at > before else failures + 1
                self._pause(error, failures)

    def close(self) -> None:
        """Give the connection back."""
        if self._body is not None:
            self._body.close()
            self._body = None

    def _receive(self, end: int) -> Iterator[bytes]:
        start = self.at
        body = self._body or self._open(start, end)
        buffer = memoryview(bytearray(_READ_BYTES))
        while self.at < end:
            count = body.readinto(buffer[: end - self._body_at])
            if not count:
                raise RetryableError("the connection ended early")
            piece = bytes(buffer[max(0, self.at - self._body_at) : count])
            self._body_at += count
            self.at += len(piece)
            self.budget.received(count)
            if failure := self.budget.too_slow():
                raise failure
            if piece:
                given = time.monotonic()
                yield piece
                self.budget.exclude(time.monotonic() - given)
        if body.start == start:  # else the hub ignores ranges, and this body goes on to the end of the file
            self.close()

    def _open(self, start: int, end: int) -> RangeResponse:
        self._body = body = self.source.open(start, end)
        self._body_at = body.start
        if body.total is not None and body.total != self.file.size:
            raise Refused(
                f"{self.name} has {body.total:,} bytes on the hub, and was locked with {self.file.size:,}.",
                next_step="corral lock --upgrade",
            )
        return body

    def _pause(self, failure: RetryableError, failures: int) -> None:
        if not self.at and isinstance(failure.__cause__, socket.gaierror | ConnectionRefusedError):
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

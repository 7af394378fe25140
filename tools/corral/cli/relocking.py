"""A catalog and the lock that it gets: checked, shown and written, for `corral lock`, `add` and `remove`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corral import output, paths
from corral.catalog import catalog
from corral.catalog.catalog import Catalog
from corral.cli import image_table, latency_table, options, vram_table
from corral.cli.plan import agreed
from corral.engine import stack
from corral.errors import CannotRun, CorralError, ExitCode, Refused
from corral.files import only_writer, refuse_unwritable, write_atomically
from corral.golden import record
from corral.lock import headers, image_room, lock
from corral.lock.lock import Lock
from corral.seating import chart

if TYPE_CHECKING:
    from corral.golden.record import Golden
    from corral.latency.budgets import Forecast
    from corral.lock.image_room import Room
    from corral.lock.relock import Relocked


@dataclass(frozen=True)
class NewLock:
    """A lock that passed all checks and is not written yet."""

    catalog: Catalog
    relocked: Relocked
    forecasts: list[Forecast]
    rooms: list[Room]

    @property
    def lock(self) -> Lock:
        """The lock itself."""
        return self.relocked.lock

    def write(self) -> bool:
        """Write it with its headers; whether it is another one than before.

        Raises:
            Refused: a file cannot be written.
        """
        directory = self.catalog.directory
        with refuse_unwritable(directory, next_step=f"Check who owns {directory}"):
            headers.write(directory, self.relocked.headers)
            written = lock.write(self.catalog.lock_file, self.lock)
            headers.prune(directory, self.lock)
        return written

    def changes_json(self) -> list[dict[str, Any]]:
        """What is different, for programs."""
        return [{one.about: one.name, "change": one.kind, "details": one.details} for one in self.relocked.changes]

    def show_changes(self, *, unchanged: bool) -> None:
        """Print what is different, line by line."""
        for item in self.relocked.changes:
            if item.kind != "unchanged" or unchanged:
                output.data(f"{item.subject}: {item.kind}")
            for detail in item.details:
                output.data(f"  {detail}")

    def show_tables(self) -> None:
        """Print what each model takes, its latency budgets and its images; warn of an engine that differs."""
        vram_table.show(self.lock)
        latency_table.show(self.forecasts)
        image_table.show(self.rooms)
        if self.lock.engine and self.lock.engine.warning:
            output.warn(self.lock.engine.warning)


def checked(wanted: Catalog, relocked: Relocked) -> NewLock:
    """*relocked*, the new lock of *wanted*, unless a latency budget or images make it impossible.

    Raises:
        Refused: one does.
    """
    forecasts = latency_table.forecasts(relocked.lock.models, wanted.measured)
    latency_table.require_possible(forecasts)
    rooms = list(image_room.rooms(relocked.lock.models, wanted.directory, relocked.headers))
    image_table.require_room(rooms)
    return NewLock(wanted, relocked, forecasts, rooms)


@dataclass(frozen=True)
class Edit:
    """One model's file written or removed, with the lock that follows from it.

    Attributes:
        before: the catalog as it was read.
        lock_text: the bytes of its lock file then, as ``lock_text`` has them.
        present: its lock; None when there is none.
        after: the lock of the catalog with the edit.
        model_id: the model.
        text: of its file; None: the file is removed, and its answers in golden.json.
        again: the command as it was typed.
    """

    before: Catalog
    lock_text: bytes | None
    present: Lock | None
    after: NewLock
    model_id: str
    text: str | None
    again: str

    @property
    def file(self) -> Path:
        """The model's file."""
        return self.before.directory / "models" / f"{self.model_id}.yaml"

    def run(self, args: argparse.Namespace, question: str, next_steps: Sequence[str]) -> int:
        """Show it, ask *question* unless ``--yes``, write it; with ``--json`` alone, nothing is written.

        Raises:
            Refused: the catalog has changed in between, or a file cannot be written; then nothing is changed.
        """
        if not args.json:
            self._show()
        is_agreed = bool(args.yes) or (not args.json and agreed(question))
        if is_agreed:
            self._write()
        steps = list(next_steps) if is_agreed else []
        if args.json:
            output.data_json(self._as_json() | {"written": is_agreed, "next": steps})
        elif not is_agreed:
            output.info("Nothing was changed.")
            return ExitCode.FAILED
        else:
            output.info(f"{self.file} {'removed' if self.text is None else 'written'}, lock.json written")
            output.info("\n".join(f"  → {step}" for step in steps))
        return ExitCode.OK

    def _show(self) -> None:
        sign, text = ("-", self.file.read_text("utf-8")) if self.text is None else ("+", self.text)
        output.data("\n".join([f"{sign} {self._name}", *(f"    {line}" for line in text.splitlines())]))
        if self._answers() is not None:
            output.data(f"~ {record.FILE_NAME}: without the answers of {self.model_id}")
        output.data("~ lock.json")
        self.after.show_changes(unchanged=False)
        for name, before, after, total in self._cards():
            was = "" if before is None else f"{before:,} → "
            output.data(f"card {name}: free {was}{after:,} of {total:,} MiB")

    def _as_json(self) -> dict[str, Any]:
        return {
            "model": self.model_id,
            "file": self._name,
            "text": self.text,
            "changes": [one for one in self.after.changes_json() if one["change"] != "unchanged"],
            "cards": {
                name: {"free_mib_before": before, "free_mib": after, "vram_mib": total}
                for name, before, after, total in self._cards()
            },
        }

    def _cards(self) -> Iterator[tuple[str, int | None, int, int]]:
        """Each card of the edited model's: its MiB that are free before, after, and all."""
        before = chart.of(self.present).cards if self.present else {}
        for name, card in chart.of(self.after.lock).cards.items():
            was = before[name].free_mib if name in before else None
            yield name, was, card.free_mib, card.vram_mib

    @property
    def _name(self) -> str:
        return self.file.relative_to(self.before.directory).as_posix()

    def _answers(self) -> Golden | None:
        """The golden answers without those of the removed model; None where there are none of it."""
        golden = record.read(self.before.directory) if self.text is None else record.Golden()
        if self.model_id not in golden.models:
            return None
        others = {name: one for name, one in golden.models.items() if name != self.model_id}
        return golden.model_copy(update={"models": others})

    def _write(self) -> None:
        with unchanged(self.before, self.lock_text, again=self.again):
            self._write_files()

    def _write_files(self) -> None:
        directory = self.before.directory
        answers = self._answers()
        written = [self.file, *([] if answers is None else [record.path_of(directory)])]
        kept = {file: _content(file) for file in written}
        old_headers = {sha256 for sha256 in self.after.relocked.headers if headers.read(directory, sha256) is not None}
        try:
            with refuse_unwritable(self.file, next_step=f"Check who owns {self.file.parent}"):
                if self.text is None:
                    self.file.unlink()
                else:
                    write_atomically(self.file, self.text)
            if answers is not None:
                record.write(directory, answers)
            self.after.write()
        except BaseException as error:
            if lock.read(self.before.lock_file) != self.present:
                raise  # all is written, but for headers that nothing needs
            with suppress(OSError):  # `corral lock` removes what is left of them
                headers.remove(directory, self.after.relocked.headers.keys() - old_headers)
            try:
                _bring_back(kept)
            except OSError as second:
                raise self._halfway(error, second) from error
            raise

    def _halfway(self, first: BaseException, second: OSError) -> Refused:
        """The error where the model's file could not become what it was, with what is left and the way out."""
        before = first.message if isinstance(first, CorralError) else "The command was interrupted."
        if self.text is None:
            left, undo = "removed", ["git", "-C", str(self.before.directory), "restore", self._name]
        else:
            left, undo = "written", ["rm", str(self.file)]
        return Refused(
            f"{before}\n{self.file} is {left}, lock.json is as it was, and the file cannot be brought back to what it "
            f"was: {second.strerror}.",
            next_step=f"Make {self.file.parent} writable, then: {shlex.join(undo)}",
        )


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


def _bring_back(kept: Mapping[Path, bytes | None]) -> None:
    """Make each file what it was, None: missing.  One that is so already needs no write.

    Raises:
        OSError: one cannot be written.
    """
    for file, content in kept.items():
        if _content(file) == content:
            continue
        if content is None:
            file.unlink()
        else:
            write_atomically(file, content)


def lock_text(wanted: Catalog) -> bytes | None:
    """The bytes of the lock file of *wanted*, for ``unchanged``; None: there is none that can be read."""
    with suppress(OSError):
        return wanted.lock_file.read_bytes()
    return None


@contextmanager
def unchanged(read: Catalog, text: bytes | None, *, again: str) -> Iterator[None]:
    """Write in the block what follows from the catalog *read* and its lock: no other corral writes there meanwhile.

    Raises:
        Refused: another program has changed one of them since; *again* is the next step.
    """
    with only_writer(read.directory):
        now = catalog.load(read.directory, may_be_empty=True)
        if now.sources != read.sources or lock_text(now) != text:
            raise Refused(f"{read.directory} has changed since it was read: nothing was written.", next_step=again)
        yield


def require_answer(args: argparse.Namespace, again: str) -> None:
    """Refuse a question that no terminal can answer; *again* is the command as it was typed.

    Raises:
        Refused: neither ``--yes`` nor ``--json`` was given, and there is no terminal.
    """
    if not (args.yes or args.json or sys.stdin.isatty()):
        raise Refused(
            "There is no terminal for the question, and --yes was not given.",
            next_step=f"See what it would change: {again} --json; then: {again} --yes",
        )


def served_steps(args: argparse.Namespace, directory: Path, locked: Lock) -> list[str]:
    """The commands that bring the catalog in *directory* and its new lock *locked* to what serves it.

    The stack of a machine serves one card.
    """
    named = f" --catalog {shlex.quote(str(directory))}" if args.catalog else ""
    here = f"on this machine: {_applied_here(args, directory)}; "
    several = len({entry.intent.card for entry in locked.models.values()}) > 1
    return [f"{'' if several else here}in the homelab: corral apply{named}"]


def _applied_here(args: argparse.Namespace, directory: Path) -> str:
    """`corral up` for the catalog in *directory*, with the options of the local stack where that is of it."""
    with suppress(CannotRun):  # a damaged record
        if (found := stack.recorded(paths.state_dir())) and found.catalog == directory.resolve():
            return found.start_command()
    return options.again(args, "up", "--detach")

"""Golden answers of a catalog's models before and after a change: by a local stack of each, with the same store."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from corral.engine import ports
from corral.errors import CannotRun, Failed, Refused
from corral.upgrade.trial import Finished

Run = Callable[..., Finished]
"""Runs the corral of one side with words, and with variables in its environment."""

_FILE = "golden.json"


def record_before(run: Run, catalog: Path, store: Path, engine: Path) -> bool:
    """Bring golden.json of *catalog* up to what the present engine answers; whether there was none before.

    Raises:
        CannotRun: the stack does not start.
        Refused: the present engine answers otherwise than the record.
        Failed: not every model answers every question.
    """
    is_new = not (catalog / _FILE).is_file()
    with _stack(run, catalog, store, engine) as corral:
        done = corral("golden", "record" if is_new else "check", "--catalog", catalog)
    if done.code and is_new:
        raise Failed(f"The present engine's golden answers cannot be recorded:\n{done.text}", next_step="corral smoke")
    if done.code:
        message = f"The present engine already answers otherwise than golden.json:\n{done.text}"
        raise Refused(message, next_step="Run corral golden check, and settle that first")
    return is_new


def check_after(run: Run, catalog: Path, store: Path, engine: Path, *, accept: bool) -> str:
    """What the check of golden.json prints for the new engine; with *accept* the new answers become the record.

    Raises:
        CannotRun: the stack does not start.
        Failed: an answer is another, and *accept* is off; the message has the differences.
    """
    with _stack(run, catalog, store, engine) as corral:
        done = corral("golden", "check", "--catalog", catalog)
        if done.code and accept:
            anew = corral("golden", "record", "--catalog", catalog)
            if anew.code:
                message = f"The new engine's golden answers cannot be recorded:\n{anew.text}"
                raise Failed(message, next_step="corral golden --help")
    if done.code and not accept:
        raise Failed(done.text)
    return done.text


@contextmanager
def _stack(run: Run, catalog: Path, store: Path, engine: Path) -> Iterator[Run]:
    with tempfile.TemporaryDirectory(prefix="corral-") as state:
        variables = {"CORRAL_STATE": state, "LLAMA_SERVER": str(engine)}

        def corral(*words: str | Path) -> Finished:
            return run(*words, variables=variables)

        port = str(ports.other_door())
        up = corral("up", "--detach", "--catalog", catalog, "--store", store, "--port", port)
        try:
            if up.code:
                raise CannotRun(
                    f"The models cannot be asked here: no local stack starts.\n{up.text}",
                    next_step="Mend that; or ask in the cluster: corral upgrade engine --no-golden, and after corral "
                    "apply: corral golden check",
                )
            yield corral
        finally:
            corral("down")

"""What of a lock the running stack does not have; tests/stack/test_status_figures.py has a real change."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from corral.agent.lock_file import LockedFile
from corral.engine import command
from corral.seating import chart, unapplied
from tests.support import seating_locks
from tests.support.seating_locks import MIB

STORE = "/srv/my models"
CHAT = ("llama-server", "-m", "${STORE}/chat/model.gguf", "--alias", "chat", "--port", "${PORT}")
MANY = ("vllm", "serve", "${STORE}/many", "--served-model-name", "many", "--port", "${PORT}")


def entry(seat_mib, argv, **changes):
    return seating_locks.entry(seat_mib * MIB, argv=argv).model_copy(update=changes)


def lock(*, chat=(100, CHAT), card_mib=150, **more):
    """One of two models in a group, with room for one of them; *chat* is the seat and the command line of one."""
    models = {"chat": entry(*chat), "many": entry(90, MANY)}
    return seating_locks.lock({"t4": seating_locks.card(card_mib)}, **models | more)


def changes(locked, before):
    """What *locked* changes where the stack was started with *before*, as Terraform renders that."""
    models = {}
    for name, found in before.models.items():
        words = [f"/opt/{found.argv[0]}", *(word.replace("${STORE}", STORE) for word in found.argv[1:])]
        line = shlex.join(["preflight.sh", "--model", name, "--need-mib", str(found.seat.mib), "--", *words])
        models[name] = {"cmd": line, "metadata": {"sha256": [file.sha256 for file in found.files]}}
    commands = command.parse(json.dumps({"startPort": 5800, "models": models}), "a test", next_step="")
    assert {one.store for one in commands.values()} == {Path(STORE)}
    sets = {name: group.sets for card in chart.of(before).cards.values() for name, group in card.groups.items()}
    return unapplied.changes(locked, commands, sets)


def test_what_runs_as_it_is_locked_is_no_change_for_either_engine():
    assert changes(lock(), lock()) == []


OTHER_FILES = (LockedFile("model.gguf", "model", 1, "2" * 64),)


@pytest.mark.parametrize(
    ("locked", "what"),
    [
        (lock(chat=(120, CHAT)), "chat (seat 120 MiB in the lock)"),
        (lock(chat=(100, (*CHAT, "-np", "2"))), "chat (another command line)"),
        (lock(chat=(100, (*CHAT[:-2], "--port", "1"))), "chat (another command line)"),
        (lock(new=entry(90, CHAT)), "new (not served)"),
        (lock(many=entry(90, MANY, files=OTHER_FILES)), "many (other files)"),
        (lock(card_mib=190), "which models run together"),
    ],
    ids=["seat", "a flag more", "another value", "new", "files", "sets"],
)
def test_each_change_is_named(locked, what):
    assert changes(locked, lock()) == [what]


def test_a_model_that_is_no_longer_locked_is_named():
    assert changes(lock(), lock(old=entry(90, CHAT))) == ["old (not in the lock)"]

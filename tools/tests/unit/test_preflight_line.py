"""Reading the preflight's records, and that no verdict depends on a sentence in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from corral.door import preflight_line
from corral.door.preflight_line import Record
from corral.engine import log_lines
from corral.engine.command import Command
from corral.why import history
from corral.why.facts import ModelFacts, StackFacts
from corral.why.next_steps import StepOptions
from corral.why.rules import judge
from corral.why.verdict import Verdict
from tests.support.preflight import Preflight
from tests.support.shells import shell

REFUSAL = """\
preflight: no-room model=a need_mib=7000 free_mib=100 total_mib=16000: a needs 7000 MiB
preflight: holder for=a pid=8 held_mib=9000 name=immich_ml: held by immich_ml
preflight: holder for=b pid=9 held_mib=9000 name=other: of another load
preflight: seat for=a pid=7 seat_mib=64 model=tiny on_card=no: seated
preflight: unattributed for=a held_mib=6900: the rest
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "preflight: room model=qwen3-vl.8b need_mib=1 free_mib=2 total_mib=3: x: y=z",
            Record("room", model="qwen3-vl.8b", need_mib=1, free_mib=2, total_mib=3),
        ),
        (
            "preflight: memory-unknown model=a need_mib=1 reason=hidden: \n",
            Record("memory-unknown", model="a", need_mib=1, reason="hidden"),
        ),
        ("preflight: no-engine model=a program=/x/y: …", Record("no-engine", model="a", program="/x/y")),
        ("preflight: usage: --model is empty", Record("usage")),
        ("preflight: holder for=a pid=8 name=x: …", Record("holder", refused="a", pid=8, name="x")),
        (
            "preflight: seat for=a pid=8 seat_mib=5 model=b on_card=yes: …",
            Record("seat", refused="a", pid=8, seat_mib=5, model="b", on_card=True),
        ),
        ("preflight: unattributed for=a held_mib=5: …", Record("unattributed", refused="a", held_mib=5)),
        ("preflight: unattributed for=a held_mib=5 more=1: …", Record("unattributed", refused="a", held_mib=5)),
        (
            "preflight: page-cache model=a cached_bytes=5 size_bytes=9: …",
            Record("page-cache", model="a", cached_bytes=5, size_bytes=9),
        ),
    ],
)
def test_a_line_is_its_code_and_fields(line, expected):
    assert preflight_line.parse(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        "preflight: room for a: it needs 1 MiB",
        "preflight: rooms model=a need_mib=1 free_mib=2 total_mib=3: another code",
        "preflight: room model=a need_mib=1 free_mib=2: a field is missing",
        "preflight: room model=a need_mib=1 free_mib=2 total_mib=x: no number",
        "preflight: room model=a need_mib=1 free_mib=2 total_mib=-3: no number",
        "preflight: room model=a need_mib=1 free_mib=2 total_mib=3",
        "preflight: room model= need_mib=1 free_mib=2 total_mib=3: no value",
        " preflight: room model=a need_mib=1 free_mib=2 total_mib=3: not at the beginning",
        "0.00.1 I chat: preflight: usage: what a prompt has in it",
        "preflight: usage: two\nlines",
    ],
)
def test_what_is_no_record_is_not_read(line):
    assert preflight_line.parse(line) is None


def test_a_refusal_has_the_holders_of_its_own_load():
    refused = preflight_line.refusal(f"noise\n{REFUSAL}noise\n")

    assert [one.code for one in refused] == ["no-room", "holder", "seat", "unattributed"]
    assert preflight_line.sentence(refused) == (
        "The preflight refused the load: a needs 7000 MiB, 100 MiB of 16000 MiB are free; held by: immich_ml (pid 8, "
        "9000 MiB); seated: tiny (pid 7, seat of 64 MiB, nothing on the card); not visible from here: 6900 MiB."
    )


def test_only_decisions_begin_the_start_of_an_engine():
    assert preflight_line.decisions(REFUSAL) == [0]
    assert preflight_line.decisions(f"x\n{REFUSAL}") == [2]


TENANT = 'case $1 in --query-gpu*) echo "100, 16000" ;; *) echo "8, 15800, /x/immich" ;; esac'
FAULTS = {  # the source, or nvidia-smi; the need; the engine; the decision
    "held by a tenant": (TENANT, "7000", (), "no-room"),
    "not visible": ("echo 100, 16000", "7000", (), "no-room"),
    "larger than the card": ("echo 100, 16000", "17000", (), "no-room"),
    "no engine": ("echo 9000, 16000", "7000", ("/nowhere/llama-server",), "no-engine"),
    "wrong arguments": ("echo 9000, 16000", "much", (), "usage"),
    "a crash with room": ("echo 9000, 16000", "7000", (), "room"),
    "a crash with memory unknown": ("false", "7000", (), "memory-unknown"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_verdict_depends_on_a_sentence(fault, tmp_path):
    source, need, engine, code = FAULTS[fault]
    preflight = Preflight(shell("dash"), tmp_path / "bin")
    if source == TENANT:
        preflight.install("nvidia-smi", source)
    log = preflight(*engine, need=need, CORRAL_VRAM_SOURCE="" if source == TENANT else source).stderr
    assert preflight_line.read(log)[0].code == code
    words = r"\1no room for b: it needs 1 MiB; out of memory"
    other = re.sub(r"^(preflight: [^:]*: ).*$", words, log, flags=re.MULTILINE)

    assert other.count("out of memory") == log.count("\n") > 0
    assert verdict(other) == verdict(log)
    assert log_lines.cause(other) == log_lines.cause(log)


def test_the_faults_have_verdicts_of_their_own(tmp_path):
    preflight = Preflight(shell("dash"), tmp_path / "bin")

    def of(*words: str, need: str = "7000", source: str = "echo 100, 16000") -> Verdict:
        return verdict(preflight(*words, need=need, CORRAL_VRAM_SOURCE=source).stderr)

    assert [(one.reason, one.culprit) for one in (of(), of(need="17000"), of(need="much"))] == [
        ("out-of-memory", "processes that are not visible from here (15900 MiB)"),
        ("out-of-memory", "its seat of 17000 MiB, on a card of 16000 MiB"),
        ("bad-argument", "the preflight's arguments"),
    ]
    assert of(source="echo 9000, 16000").reason == "crashed"
    error = log_lines.classify_engine_error(preflight("/x/y", CORRAL_VRAM_SOURCE="echo 9000, 16000").stderr)
    assert (error.code, error.subject) == ("engine-missing", "/x/y")


def verdict(log: str) -> Verdict:
    """What `corral why` makes of a load that failed with *log*, the preflight's records."""
    end = "2026-11-21T14:55:12Z [WARN] group: running qwen3-8b exited: upstream command exited prematurely\n"
    found = history.read(log + end)["qwen3-8b"]
    assert found.state == "failed"
    assert log_lines.last_start(log) == log
    error = log_lines.classify_engine_error(history.log_of(log + end, "qwen3-8b", found) or log)
    command = Command(("llama-server",), "llama-server", (), 5800, limit=10, load_limit_s=300, rivals=(), sha256=())
    facts = ModelFacts("qwen3-8b", "qwen3-8b", command, history=found, error=error, now=found.at)
    stack = StackFacts("running", "http://127.0.0.1:8080", 4711)
    return judge(stack, facts, StepOptions(Path("/c")))

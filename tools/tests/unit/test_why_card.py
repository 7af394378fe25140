"""`corral why` with the account of a card, whose exporter knows what the preflight in a pod cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.cluster.target import ClusterTarget
from corral.engine.command import Command
from corral.engine.log_lines import End, EngineCode, EngineError, classify_engine_error
from corral.exporter.account import CardAccount, Row
from corral.exporter.driver import Card
from corral.why.facts import ModelFacts, StackFacts
from corral.why.history import History
from corral.why.next_steps import StepOptions
from corral.why.rules import judge
from corral.why.verdict import Reason

MIB = 1 << 20
NOW = 1_800_000_000.0
REFUSED = classify_engine_error(
    "preflight: no-room model=chat need_mib=6996 free_mib=1 total_mib=15360: …\n"
    "preflight: unattributed for=chat held_mib=15359: …"
)
COMMAND = Command(("llama-server",), "llama-server", (), 5800, limit=10, load_limit_s=300, rivals=(), sha256=())
CHAT = Row("model", "chat", group="main", promised=6996 * MIB, held=0, short=6995 * MIB)
RESERVE = Row("reserve", "reserve", promised=512 * MIB)
BALLOON = Row(
    "tenant",
    "immich-ml",
    promised=2100 * MIB,
    held=10726 * MIB,
    pods=("immich/ml-0",),
    over_since=NOW - 7500,
)
WITHIN = Row("tenant", "frigate", promised=2300 * MIB, held=2200 * MIB, pods=("nvr/frigate-0",))


def account(*rows):
    card = Card("GPU-1", "Tesla T4", 15360 * MIB, MIB)
    return CardAccount("t4", 15360 * MIB, card, "", "", (*rows, RESERVE))


FAILED = History("failed", NOW - 60, End.EXITED, "exited", 1)


def verdict(*rows, error=REFUSED, cards=None, no_account="", history=FAILED):
    cards = (account(*rows),) if cards is None else cards
    exporter = "watch" if cards else ""
    stack = StackFacts("running", cards=cards, exporter=exporter, no_account=no_account, has_nvidia_smi=True)
    facts = ModelFacts(
        "chat", "chat", COMMAND, history=history, error=error, now=NOW, can_see_processes=False, can_see_ports=False
    )
    return judge(stack, facts, StepOptions(cluster=ClusterTarget(Path("/k"), "lab", "llama-cpp")))


def test_the_tenant_beyond_its_promise_is_the_culprit_with_its_pod_and_the_time():
    found = verdict(CHAT, BALLOON, WITHIN)

    assert (found.reason, found.culprit) == (Reason.OUT_OF_MEMORY, "immich-ml, 8626 MiB over its promise")
    held = "immich-ml holds 10726 MiB of the card now, and was promised 2100"
    assert found.evidence[0] == f"{held}, first observed 2 h 05 min ago, in immich/ml-0."
    assert not any("frigate" in line for line in found.evidence)
    assert found.next_steps == (
        "corral card --context lab --namespace watch --kubeconfig /k",
        "kubectl --kubeconfig /k --context lab -n immich delete pod ml-0",
        "corral smoke chat --context lab --namespace llama-cpp --kubeconfig /k",
    )


def test_a_pod_that_no_card_names_is_the_culprit_where_it_has_more_than_the_reserve():
    pod = Row("pod", "jobs/train-0", held=9000 * MIB, pods=("jobs/train-0",))
    found = verdict(CHAT, WITHIN, pod)

    assert found.culprit == "jobs/train-0, 9000 MiB without a promise"
    assert found.next_steps[1] == "kubectl --kubeconfig /k --context lab -n jobs describe pod train-0"
    assert "hidden" not in verdict(CHAT, WITHIN, Row("hidden", "pid 7", held=500 * MIB)).culprit


def test_the_largest_excess_is_named_first():
    small = Row("tenant", "frigate", promised=2300 * MIB, held=2310 * MIB)
    found = verdict(CHAT, small, BALLOON, Row("process", "Xorg", held=600 * MIB))

    assert found.culprit.startswith("immich-ml, ")
    assert [line.partition(" holds")[0] for line in found.evidence[:3]] == ["immich-ml", "Xorg", "frigate"]


def test_an_excess_that_is_small_beside_what_is_missing_is_evidence_and_no_culprit():
    found = verdict(CHAT, Row("tenant", "immich-ml", promised=2100 * MIB, held=2101 * MIB, pods=("immich/ml-0",)))

    assert found.culprit == "processes that are not visible from here (15359 MiB)"
    assert "immich-ml holds 2101 MiB of the card now, and was promised 2100, in immich/ml-0." in found.evidence
    assert not any("delete" in step for step in found.next_steps)


def test_a_seat_that_is_larger_than_the_card_is_no_tenants_fault():
    error = classify_engine_error("preflight: no-room model=chat need_mib=16000 free_mib=1 total_mib=15360: …")

    assert verdict(CHAT, BALLOON, error=error).culprit == "its seat of 16000 MiB, on a card of 15360 MiB"


def test_a_model_that_was_not_requested_yet_has_the_tenant_that_took_its_room():
    found = verdict(CHAT, BALLOON, error=None, history=History())

    assert (found.reason, found.culprit) == (Reason.OUT_OF_MEMORY, "immich-ml, 8626 MiB over its promise")
    assert found.evidence[-1] == "It is not loaded, and the card lacks 6995 MiB of its seat of 6996 MiB."


def test_without_an_excess_the_model_lacks_room_all_the_same():
    found = verdict(CHAT, WITHIN, error=None, history=History())

    assert (found.reason, found.culprit) == (Reason.OUT_OF_MEMORY, "the card, 6995 MiB short")


@pytest.mark.parametrize("short", [None, 0])
def test_a_model_that_lacks_nothing_or_of_whom_that_is_unknown_is_as_without_an_account(short):
    row = Row("model", "chat", group="main", promised=6996 * MIB, held=0, short=short)

    assert verdict(row, BALLOON, error=None, history=History()).reason is Reason.HEALTHY


@pytest.mark.parametrize("rows", [(CHAT, WITHIN), (BALLOON,)], ids=["within", "another-card"])
def test_where_no_holder_of_its_card_has_too_much_the_preflight_is_quoted(rows):
    found = verdict(*rows)

    assert found.culprit == "processes that are not visible from here (15359 MiB)"
    assert found.next_steps[0] == "corral card --context lab --namespace watch --kubeconfig /k"


def test_a_refusal_is_over_when_the_card_has_room():
    room = Row("model", "chat", group="main", promised=6996 * MIB, held=0, short=0)
    found = verdict(room, WITHIN)

    assert found.reason is Reason.HEALTHY
    assert "for a reason that no longer holds: send the request again." in found.evidence[1]


@pytest.mark.parametrize("short", [None, MIB])
def test_room_that_is_unknown_or_too_small_resolves_nothing(short):
    assert verdict(Row("model", "chat", promised=6996 * MIB, short=short)).reason is Reason.OUT_OF_MEMORY


def test_an_engine_that_took_more_than_its_seat_is_not_resolved_by_room_for_the_seat():
    error = EngineError(EngineCode.OUT_OF_MEMORY, line="CUDA error: out of memory")
    room = Row("model", "chat", promised=6996 * MIB, held=0, short=0)

    assert verdict(room, error=error).reason is Reason.OUT_OF_MEMORY


def test_this_machines_own_memory_is_no_tenants_fault():
    error = EngineError(EngineCode.OUT_OF_MEMORY, line="cannot allocate a CPU buffer", on_host=True)

    assert verdict(CHAT, BALLOON, error=error).culprit == "this machine's memory, not a card's"


def test_without_an_account_the_reason_for_that_is_evidence():
    found = verdict(cards=(), no_account="Who holds the card is not known: a test.")

    assert "Who holds the card is not known: a test." in found.evidence
    assert found.next_steps[0].endswith("exec deployment/llama-swap -- nvidia-smi")

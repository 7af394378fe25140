"""Golden answers of real engines: every fault that HTTP 200 does not show is found, and a clean repetition is not.

``tools/benchmarks/golden.py`` has more cases and repetitions; docs/golden.md has its figures.
"""

from __future__ import annotations

import pytest

from corral.demo import tiny_gguf
from corral.demo.smollm2 import SMOLLM2
from corral.golden.comparison import ACROSS_LIMIT, SAME_LIMIT
from tests.support import golden

pytestmark = pytest.mark.timeout(240)
ASKED = tuple(one for one in golden.TEXT if one.name in {"prose", "conversation"})
"""Two of the questions: this many tokens take a second."""


@pytest.fixture(scope="module")
def weights():
    return SMOLLM2.bring(lambda _: None)


@pytest.fixture(scope="module")
def repetitions(tmp_path_factory, weights):
    """The answers of one engine, three times."""
    with golden.serving(tmp_path_factory.mktemp("golden"), weights) as root:
        return [golden.ask(root, ASKED) for _ in range(3)]


@pytest.fixture(scope="module")
def record(repetitions):
    return golden.recorded(repetitions[0])


@pytest.fixture
def check(record, weights, tmp_path):
    """The verdict on an engine with other flags or weights: on the same machine, and across."""

    def checked(*flags, other=weights):
        now = golden.answers(tmp_path, other, *flags, asks=ASKED)
        return [golden.check(record, now, where, ASKED) for where in (golden.HERE, golden.ELSEWHERE)]

    return checked


def test_a_clean_repetition_is_not_found(repetitions, record):
    for again in repetitions[1:]:
        found = golden.check(record, again, asks=ASKED)
        assert (found.state, found.moved) == ("passed", ())
        assert found.distance < SAME_LIMIT / 5


def test_another_way_to_compute_the_same_is_not_found_across_machines(check):
    """Where the engine and the machine are the same, it is: nothing else there rounds otherwise."""
    here, across = check("-fa", "off")
    assert (here.state, across.state) == ("failed", "passed")


def test_a_cache_of_q8_0_is_found_on_the_same_machine_alone(check):
    """Across machines it is not more than what another way to compute makes."""
    here, across = check("-ctk", "q8_0", "-ctv", "q8_0")
    assert (here.state, across.state) == ("failed", "passed")
    assert SAME_LIMIT < here.distance < ACROSS_LIMIT


def test_a_cache_of_q4_0_is_found_across_machines_too(check):
    here, across = check("-ctk", "q4_0", "-ctv", "q4_0")
    assert (here.state, across.state) == ("failed", "failed")
    assert across.distance > ACROSS_LIMIT


def test_a_wrong_chat_template_is_found_by_distance_and_by_the_tokens_of_the_prompt(check):
    _, across = check("--chat-template", "zephyr")
    assert across.state == "failed"
    assert across.distance > ACROSS_LIMIT
    assert all("tokens of the prompt" in one.differences[0] for one in across.compared)


def test_flipped_bits_are_found_whether_the_engine_still_answers_or_not(check, weights, tmp_path):
    _, across = check(other=golden.flip_bits(weights, tmp_path / "flipped.gguf", 3000))
    assert across.state == "failed"
    assert {one.state for one in across.compared} == {"failed"}


def test_a_foreign_projector_of_equal_width_is_found_by_the_fields(tmp_path):
    tiny = tiny_gguf.write_all(tmp_path / "tiny")
    foreign = golden.foreign_projector(tiny.projector, tmp_path / "foreign.gguf")
    right, again, wrong = (
        golden.answers(tmp_path, tiny.vision, "--image-max-tokens", "64", "--mmproj", projector, asks=golden.VISION)
        for projector in (tiny.projector, tiny.projector, foreign)
    )
    record = golden.recorded(right)
    assert golden.check(record, again, golden.ELSEWHERE, golden.VISION).state == "passed"
    found = golden.check(record, wrong, golden.ELSEWHERE, golden.VISION)
    assert [one.state for one in found.compared] == ["failed", "failed"]
    assert "field colours: 'red, blue, blue' → " in found.compared[0].differences[0]

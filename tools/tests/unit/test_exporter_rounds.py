"""What is done again and again beside the server goes on, whatever one round raises."""

from __future__ import annotations

import threading

from corral.exporter.rounds import repeating


def test_what_a_round_raises_costs_that_round_and_is_one_message(capsys):
    errors, rounds = [RuntimeError("a test"), RuntimeError("a test"), IndexError()], threading.Semaphore(0)

    def act():
        rounds.release()
        if errors:
            raise errors.pop()

    with repeating(act, 0.0, "Nothing is done"):
        assert all(rounds.acquire(timeout=60) for _ in range(5))
    assert capsys.readouterr().err == "exporter: Nothing is done: IndexError\nexporter: Nothing is done: a test\n"


def test_a_first_round_can_be_now():
    acted = threading.Event()
    with repeating(acted.set, 3600.0, "Nothing is done", begins_now=True):
        assert acted.wait(60)

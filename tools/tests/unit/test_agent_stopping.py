"""SIGTERM ends the agent's work."""

from __future__ import annotations

import signal

import pytest

from corral.agent.stopping import stop_on_sigterm

pytestmark = pytest.mark.timeout(40)


def test_a_sigterm_within_the_wait_for_it_ends_the_wait():
    with stop_on_sigterm() as stop:
        with stop._cond:  # as wait() holds it
            signal.raise_signal(signal.SIGTERM)

        assert stop.wait(30)


def test_afterwards_a_sigterm_is_handled_as_before():
    before = signal.getsignal(signal.SIGTERM)

    with stop_on_sigterm():
        assert signal.getsignal(signal.SIGTERM) is not before

    assert signal.getsignal(signal.SIGTERM) is before

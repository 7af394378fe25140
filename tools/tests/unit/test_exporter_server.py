"""The exporter's server ends at a signal, whenever it comes."""

from __future__ import annotations

import signal
from urllib.request import urlopen

import pytest
from prometheus_client.registry import Collector

from corral.exporter.server import serve_until_signal


class NoMetrics(Collector):
    def collect(self):
        return []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_before_it_waits_for_one_ends_it(number):
    handler, mask = signal.getsignal(number), signal.pthread_sigmask(signal.SIG_BLOCK, [])
    answers = []

    def announce(port):
        with urlopen(f"http://127.0.0.1:{port}/health") as answer:
            answers.append(answer.read())
        signal.raise_signal(number)

    serve_until_signal(("127.0.0.1", 0), NoMetrics(), dict, announce, ())

    assert answers == [b"OK\n"]
    assert (signal.getsignal(number), signal.pthread_sigmask(signal.SIG_BLOCK, [])) == (handler, mask)

"""The last requests of a model, as status shows them."""

import pytest

from corral.engine import recent
from corral.engine.llama_swap import Exchange


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ([], ""),
        ([Exchange("a", 100.0, 200, 1.234, 20, 50, 41.26)], "1.23 s, 41.3 tokens/s, 30 s ago"),
        ([Exchange("a", 100.0, 200, 0.5)], "0.50 s, 30 s ago"),
        ([Exchange("a", 100.0, 503, 2.0)], "HTTP 503 after 2.00 s, 30 s ago"),
        ([Exchange("a", 131.0, 200, 0.5)], "0.50 s, 0.0 s ago"),
        ([Exchange("a", 100.0, 200, 0.5), Exchange("a", 90.0, 500, 7.0)], "0.50 s, 30 s ago"),
    ],
)
def test_the_newest_request_has_its_time_its_speed_and_its_age(requests, words):
    assert recent.words(requests, 130.0) == words


def test_each_model_has_its_last_five_the_newest_first():
    listed = [Exchange("ab"[number % 2], float(number), 200) for number in range(20, 0, -1)]
    found = recent.by_model(listed)
    assert [one.ended for one in found["a"]] == [20, 18, 16, 14, 12]
    assert [one.ended for one in found["b"]] == [19, 17, 15, 13, 11]

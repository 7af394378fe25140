"""How replies of models without answers in words are judged, each fault by its own reason."""

from __future__ import annotations

import json
import re

import pytest

from corral.smoke.checks import Question
from corral.smoke.endpoint import Reply
from corral.smoke.questions import RANKINGS, TEXTS, Subject
from corral.smoke.vectors import judge_ranking, judge_vector, judge_vectors

QUESTION = Question("m", "corral logs m", dimension=3, near_at=1)
FIRST, NEAR, FAR = [1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.0, 0.0, 1.0]
GOOD = [FIRST, NEAR, FAR, FIRST]


def reply(document, status=200):
    body = document if isinstance(document, str) else json.dumps(document)
    return Reply(status, "application/json", body.encode())


def embeddings(*vectors):
    return reply({"data": [{"index": at, "embedding": one} for at, one in enumerate(vectors)]})


def ranking(*rows):
    return reply({"results": [{"index": at, "relevance_score": score} for at, score in rows]})


def test_a_sound_vector_passes_and_its_dimension_is_compared_where_it_is_known():
    assert judge_vector(embeddings(FIRST), QUESTION).reason == "a vector of 3 numbers, as its header has"
    unknown = judge_vector(embeddings(FIRST), Question("m", "logs"))
    assert (unknown.status, unknown.reason) == (
        "passed",
        "a vector of 3 numbers, which no header is there to compare with",
    )


def test_the_order_of_the_vectors_is_that_of_their_indices():
    rows = [{"index": at, "embedding": one} for at, one in enumerate(GOOD)]
    verdict = judge_vectors(reply({"data": rows[::-1]}), QUESTION)
    assert verdict.reason == (
        "the same text has the same vector, and cosine 0.9939 to the near text, 0.0000 to the far one"
    )


def test_vectors_that_are_all_of_another_dimension_than_the_header_fail():
    verdict = judge_vector(embeddings([1.0, 0.5]), QUESTION)
    assert (verdict.status, "has 2 numbers, and its model's header has 3" in verdict.reason) == ("failed", True)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (embeddings(*GOOD[:3]), "no answer with 4 embeddings"),
        (reply({"data": [{"index": 0, "embedding": FIRST}] * 4}), "no answer with 4 embeddings"),
        (reply({"data": {"index": 0}}), "no answer with 4 embeddings"),
        (reply([]), "no answer with 4 embeddings"),
        (embeddings(FIRST, NEAR, FAR, []), "no list of numbers"),
        (embeddings(FIRST, NEAR, FAR, "AAAA"), "no list of numbers"),
        (embeddings(FIRST, NEAR, FAR, [1.0, None, 0.0]), "no finite number"),
        (reply(embeddings(*GOOD).body.decode().replace("0.9", "NaN")), "no finite number"),
        (embeddings(FIRST, NEAR, FAR, [1.0, True, 0.0]), "no finite number"),
        (embeddings(FIRST, NEAR, FAR, [1.0, 0.0]), "has 2 numbers, and its model's header has 3"),
        (embeddings(FIRST, NEAR, FAR, [0.0, 0.0, 0.0]), "an embedding is zero"),
        (embeddings(FIRST, NEAR, FAR, NEAR), "the same text has two vectors, with a cosine of 0.9939"),
        (embeddings(FIRST, FAR, NEAR, FIRST), "the near text is not the closer one"),
        (reply({"error": {"message": "not supported"}}, 501), "HTTP 501.*not supported"),
        (reply("no JSON"), "invalid JSON"),
    ],
)
def test_embeddings_that_no_client_could_use_fail_with_the_reason(answer, why):
    verdict = judge_vectors(answer, QUESTION)
    assert verdict.status == "failed"
    assert re.search(why, verdict.reason), verdict.reason


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ranking((0, 0.9), (1, 0.1)), "the relevant document is not first"),
        (ranking((1, 0.5), (0, 0.5)), "the relevant document is not first"),
        (ranking((0, 0.1), (1, 0.9)), "not sorted by its scores"),
        (ranking((1, 0.9)), "no ranking of two documents"),
        (ranking((1, 0.9), (1, 0.1)), "does not name documents 0 and 1"),
        (ranking((1, 0.9), (2, 0.1)), "does not name documents 0 and 1"),
        (ranking((1, 0.9), (0, None)), "no finite number"),
        (reply({"results": [{"index": 1, "relevance_score": "0.9"}, {"index": 0}]}), "no finite number"),
        (reply({}), "no ranking of two documents"),
        (reply({"error": {"message": "Start it with `--reranking`"}}, 501), "HTTP 501"),
    ],
)
def test_a_ranking_that_no_client_could_use_fails_with_the_reason(answer, why):
    verdict = judge_ranking(answer, QUESTION)
    assert (verdict.status, why in verdict.reason) == ("failed", True), verdict.reason


def test_the_relevant_document_is_first_wherever_it_is_listed():
    assert judge_ranking(ranking((1, 0.9), (0, 0.1)), QUESTION).status == "passed"
    swapped = Question("m", "logs", near_at=0)
    assert judge_ranking(ranking((0, 0.9), (1, 0.1)), swapped).status == "passed"
    asks = Subject("m", task="rerank", prompt="q", near="near", far="far")
    assert [asks.body(check)["documents"][place] for check, place in RANKINGS.items()] == ["near", "near"]


def test_every_task_without_answers_has_texts_of_its_own_and_its_path():
    assert set(TEXTS) == {"embedding", "rerank"}
    assert {len(set(texts)) for texts in TEXTS.values()} == {3}
    assert Subject("m", task="embedding").path == "/v1/embeddings"
    assert Subject("m", task="rerank").path == "/v1/rerank"

"""A request of a benchmark: a whole answer with the server's numbers, and each fault by its name."""

import asyncio

import pytest

from corral.bench import figures
from corral.bench.exchange import OUTCOMES, Broken, Client, Outcome, Sample, StreamedAnswer
from corral.bench.prompts import Prompts, body
from tests.support.paced_endpoint import FAULTS, Pace, paced


def sent(pace, *models, key="", silence_s=60.0, timeout_s=60.0, scheduled=None):
    """The samples of one request to each of *models*, one after the other."""

    async def play():
        async with (
            paced(pace) as address,
            Client(address, api_key=key, silence_s=silence_s, timeout_s=timeout_s) as client,
        ):
            return [await client.send(body(model, "hello", 8, may_end=False), scheduled) for model in models]

    return asyncio.run(play())


def test_a_whole_answer_has_the_numbers_of_the_server():
    (one,) = sent(Pace(tokens=16), "honest")
    assert one.outcome == "ok"
    assert one.is_ok
    assert (one.prompt_tokens, one.cached_tokens, one.output_tokens, one.chunks) == (20, 4, 16, 16)
    assert one.sent <= one.first <= one.last <= one.ended
    assert len(one.gaps) == 15
    assert one.server_prompt_s >= 0


def test_tokens_are_those_of_the_server_and_not_pieces():
    (one,) = sent(Pace(tokens=16, piece=4), "honest")
    assert (one.output_tokens, one.chunks, len(one.gaps)) == (16, 4, 3)


@pytest.mark.parametrize("piece", [1, 2, 4, 8])
def test_the_time_of_a_token_does_not_depend_on_how_many_a_piece_has(piece):
    """32 tokens, 10 ms each; a piece arrives when its last token is there."""
    arrived = [0.05 + 0.01 * number for number in range(piece - 1, 32, piece)]
    one = Sample(0.0, 0.0, "ok", arrived[0], arrived[-1], arrived[-1], len(arrived), output_tokens=32)
    assert figures.tpot(one) == pytest.approx(0.01)


def test_at_least_fourteen_faults_are_played():
    assert len(FAULTS) >= 14
    assert set(FAULTS.values()) >= set(OUTCOMES) - {Outcome.NOT_CONNECTED}


@pytest.mark.parametrize("model", FAULTS)
def test_a_fault_is_no_success_and_has_its_name(model):
    pace = Pace(tokens=16)
    if model == "drip":
        (one,) = sent(pace, model, timeout_s=0.5)
    else:
        (one,) = sent(pace, model, silence_s=0.3 if model.startswith("stall") else 60.0)
    assert one.outcome == FAULTS[model]
    assert not one.is_ok
    assert one.ended >= one.sent


def test_an_endpoint_that_does_not_listen_is_not_connected():
    async def play():
        async with paced(Pace()) as address:
            pass
        async with Client(address, silence_s=5, timeout_s=5) as client:
            return await client.send(body("m", "hello", 8, may_end=False))

    assert asyncio.run(play()).outcome == "not-connected"


def test_what_the_server_asks_and_writes_about_a_refusal_is_kept():
    (one,) = sent(Pace(), "http-429")
    assert (one.retry_after, one.example) == ("3", '{"error": {"message": "no"}}')


def test_a_fault_does_not_disturb_the_next_request():
    outcomes = [one.outcome for one in sent(Pace(), "cut", "honest", "reset-within", "honest")]
    assert outcomes == ["cut", "ok", "broken-body", "ok"]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_it_does_not_matter_where_the_bytes_are_parted(size):
    events = (
        b': hello\r\n\r\ndata: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\r\n\r\n'
        b'event: x\ndata: {"choices":[{"delta":{"reasoning_content":"b"}}]}\n\n'
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}\n\n'
        b'data:{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":3}}\n\n'
        b"data: [DONE]\n\n"
    )
    one = Sample(0.0)
    answer = StreamedAnswer(one)
    for at in range(0, len(events), size):
        answer.feed(events[at : at + size], float(at))
    assert answer.outcome() == "ok"
    assert (one.chunks, one.output_tokens, one.prompt_tokens) == (3, 3, 3)
    assert len(one.gaps) == 2


@pytest.mark.parametrize(
    "usage",
    ['"usage": null', '"usage": {"completion_tokens": -1}', '"usage": {"completion_tokens": true}', '"usage": [3]'],
)
def test_an_invalid_number_of_tokens_counts_as_missing(usage):
    one = Sample(0.0)
    answer = StreamedAnswer(one)
    answer.feed(b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n', 1.0)
    answer.feed(f"data: {{{usage}}}\ndata: [DONE]\n".encode(), 2.0)
    assert answer.outcome() == "no-usage"


def test_llama_cpps_timings_stand_in_for_the_usage():
    one = Sample(0.0)
    answer = StreamedAnswer(one)
    timings = '{"prompt_n": 5, "cache_n": 2, "prompt_ms": 250, "predicted_n": 9, "predicted_ms": 90}'
    answer.feed(b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n', 1.0)
    answer.feed(f'data: {{"timings": {timings}}}\ndata: [DONE]\n'.encode(), 2.0)
    assert answer.outcome() == "ok"
    assert (one.prompt_tokens, one.cached_tokens, one.output_tokens) == (7, 2, 9)
    assert (one.server_prompt_s, one.server_output_s) == (0.25, 0.09)


def test_deeply_nested_json_is_a_fault_and_no_crash():
    with pytest.raises(Broken) as caught:
        StreamedAnswer(Sample(0.0)).feed(b"data: " + b"[" * 200_000 + b"\n", 1.0)
    assert caught.value.outcome == "bad-json"


def test_every_request_has_another_beginning():
    prompts = Prompts(100)
    texts = [prompts.next() for _ in range(50)]
    assert len({text[:8] for text in texts}) == 50


@pytest.mark.parametrize(("tokens_a_word", "template"), [(1, 0), (1, 40), (4, 10), (0.5, 25)])
def test_a_prompt_has_the_asked_length_after_two_counts(tokens_a_word, template):
    prompts = Prompts(400)

    def counted():
        return template + round(tokens_a_word * (len(prompts.next().split()) - 1))

    for _ in range(2):
        prompts.correct(counted())
    assert abs(counted() - 400) <= 4


def test_a_server_that_counts_wrong_gets_no_endless_prompt():
    prompts = Prompts(100)
    for _ in range(5):
        prompts.next()
        prompts.correct(1)
    assert len(prompts.next().split()) <= 201


def test_a_prompt_of_megabytes_is_sent_whole():
    pace = Pace()

    async def play():
        async with paced(pace) as address, Client(address, silence_s=60, timeout_s=60) as client:
            return await client.send(body("m", "word " * 500_000, 8, may_end=False))

    assert asyncio.run(play()).outcome == "ok"
    assert len(pace.bodies[0]["messages"][0]["content"]) == 2_500_000


def test_a_prompt_that_is_shorter_than_its_template_has_a_word():
    prompts = Prompts(10)
    for _ in range(3):
        prompts.correct(60)
    assert len(prompts.next().split()) == 2


def test_the_request_asks_for_exactly_so_many_tokens_unless_the_answer_may_end():
    pace = Pace()

    async def play():
        async with paced(pace) as address, Client(address, api_key="k", silence_s=60, timeout_s=60) as client:
            for may_end in (False, True):
                await client.send(body("m", "hello", 8, may_end=may_end))

    asyncio.run(play())
    exact, free = pace.bodies
    assert (exact["max_tokens"], exact["ignore_eos"], exact["temperature"]) == (8, True, 0)
    assert exact["stream_options"] == {"include_usage": True}
    assert "ignore_eos" not in free

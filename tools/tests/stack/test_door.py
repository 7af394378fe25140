"""The guard in front of the real llama-swap with real engines: what a client and an operator get, and what not."""

from __future__ import annotations

import contextlib
import json
import socket
import threading

import pytest

from corral.demo import tiny_gguf
from corral.exporter.llama_swap import LlamaSwap
from tests.support.engine_process import free_port, get, post, question, wait_for
from tests.support.guard_process import post as posted
from tests.support.guard_process import read_answer, run_guard
from tests.support.served import Served, served

pytestmark = pytest.mark.timeout(180)
TOKENS = 400
CLIENTS = {
    "operator": {"models": None, "requests": None, "role": "operator"},
    "first": {"models": None, "requests": None, "role": "client"},
    "second": {"models": ["text"], "requests": None, "role": "client"},
    "watch": {"models": [], "requests": 4, "role": "monitor"},
    "steward": {"models": [], "requests": 4, "role": "steward"},
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """Its card has 90 MiB of 1000 MiB left: room for every model but ``needy``."""
    folder = tmp_path_factory.mktemp("door")
    tiny, slow = tiny_gguf.write_all(folder), folder / "slow.gguf"
    tiny_gguf.write_text(slow, n_ff=80_000)  # an answer takes seconds
    models = {
        "text": Served(tiny.text, more=["--metrics"]),
        "slow": Served(slow, more=["--metrics"]),
        "vision": Served(tiny.vision, more=["--mmproj", str(tiny.projector), "--image-max-tokens", "64"]),
        "needy": Served(tiny.text, need_mib=700),
        "broken": Served(tiny.text, more=["--no-such-flag"]),
    }
    run = folder / "run"
    run.mkdir()
    with served(run, models, card="echo 90, 1000") as running:
        yield running


@pytest.fixture
def guard(stack, tmp_path):
    models = {name: name for name in ("text", "slow", "vision", "needy", "broken")}
    key = {"internal_key_file": str(stack.running.folder / "llama-swap.key")}
    with run_guard(tmp_path, stack.running.door.swap_port, **key, clients=CLIENTS, models=models, body_mib=64) as guard:
        yield guard


def content(answer):
    assert answer.status == 200, answer
    return json.loads(answer.body)["choices"][0]["message"]["content"]


def stream_of(model: str, tokens: int = TOKENS, key: str = "key-of-first") -> bytes:
    return posted(question("Go on.", model=model, stream=True, ignore_eos=True, max_tokens=tokens), key=key)


def test_llama_swap_answers_the_guard_alone(guard, stack):
    llama_swap = stack.running.client().endpoint
    assert post(f"{llama_swap}/v1/chat/completions", question("Hello.", model="text"))[0] == 401
    assert get(f"{llama_swap}/running")[0] == 401
    assert guard.post(question("Hello.", model="text"), key="").status == 401
    assert content(guard.post(question("Hello.", model="text"))) == "OK"


def test_an_image_in_the_request_is_answered(guard):
    assert content(guard.post(question("red", "blue", model="vision"))) == "red, blue"


def test_a_stream_has_every_token_and_its_end(guard):
    with guard.connect() as connection:
        connection.sendall(stream_of("text"))
        answer = read_answer(connection)

    events = [line for line in answer.body.splitlines() if line.startswith(b"data: ")]
    tokens = [one for one in events[:-1] if json.loads(one[6:])["choices"][0]["delta"].get("content")]
    assert (answer.fields["content-type"], events[-1]) == ("text/event-stream", b"data: [DONE]")
    assert len(tokens) == TOKENS


def slots(guard, model):
    return json.loads(guard.get(f"/upstream/{model}/slots", "operator-key").body)


def test_a_client_that_disconnects_frees_its_slot(guard):
    with guard.connect() as connection:
        connection.sendall(stream_of("slow"))
        received = b""
        while received.count(b"data: ") < 3:
            received += connection.recv(1 << 16)

    wait_for(lambda: not any(slot["is_processing"] for slot in slots(guard, "slow")), what="a free slot")
    (slot,) = slots(guard, "slow")
    assert slot["next_token"][0]["n_decoded"] < TOKENS
    assert guard.next_record()["code"] == "client-closed"


def test_a_refused_load_has_the_preflights_figures(guard):
    answer = guard.post(question("Hello.", model="needy"))
    operators = guard.post(question("Hello.", model="needy"), key="operator-key")

    assert (answer.status, answer.fields["retry-after"], answer.error["code"]) == (503, "30", "no-room")
    assert [answer.error[name] for name in ("need_mib", "free_mib", "total_mib")] == [700, 90, 1000]
    assert "holders" not in answer.error
    assert isinstance(operators.error["holders"], list)
    assert guard.next_record()["model"] == "needy"


def test_a_load_that_failed_for_another_reason_has_no_figures(guard, stack):
    answer = guard.post(question("Hello.", model="broken"))

    client = stack.running.client()
    assert LlamaSwap(client.endpoint, client.headers).requests()[-1].load_failure == "process-ended"
    assert (answer.status, answer.error["code"]) == (503, "load-failed")
    assert set(answer.error) == {"message", "type", "code"}


def test_a_client_uses_and_sees_only_its_models(guard, stack):
    assert content(guard.post(question("Hello.", model="text"), key="key-of-second")) == "OK"
    refused = guard.post(question("Hello.", model="vision"), key="key-of-second")

    assert (refused.status, refused.error["code"]) == (404, "model-not-found")
    listed = json.loads(guard.get("/v1/models", "key-of-second").body)["data"]
    assert [one["id"] for one in listed] == ["text"]
    listed = json.loads(guard.get("/v1/models", "key-of-first").body)["data"]
    assert {one["id"] for one in listed} == set(stack.ports)


def watched(guard, path):
    """The answer of *path* with the key of the monitor."""
    guard.set_keys(watch=["key-of-watch"], first=["key-of-first"], operator=["operator-key"])
    return guard.get(path, "key-of-watch")


def test_a_monitor_reads_what_runs_and_loads_nothing(guard):
    assert content(guard.post(question("Hello.", model="text"))) == "OK"
    figures = watched(guard, "/engine-metrics/text")
    assert (figures.status, figures.fields["content-type"]) == (200, "text/plain; version=0.0.4")
    assert b"\nllamacpp:requests_processing 0\n" in figures.body
    requests = json.loads(watched(guard, "/api/metrics/activity?limit=1").body)["data"]
    assert requests[0]["model"] == "text"

    host, port = guard.address
    exporters = LlamaSwap(f"http://{host}:{port}", {"Authorization": "Bearer key-of-watch"}, is_door=True)
    (resident,) = [one for one in exporters.residents() if one.model == "text"]
    assert exporters.engine(resident)["requests_processing"] == 0
    assert exporters.requests()[-1].model == "text"
    number = exporters.requests()[-1].number
    assert exporters.probe(resident) > 0
    assert exporters.requests()[-1].number == number

    unloaded = guard.post(b"", path="/api/models/unload/text", key="operator-key", Content_Length="0")
    assert unloaded.status == 200, unloaded
    assert exporters.probe(resident) is None
    for path in ("/engine-metrics/text", "/engine-metrics/nothing"):
        assert (watched(guard, path).status, watched(guard, path).error["code"]) == (404, "not-loaded")
    assert "text" not in [one["model"] for one in json.loads(watched(guard, "/running").body)["running"]]


@pytest.mark.parametrize("path", ["/upstream/text/metrics", "/unload", "/logs", "/api/models/unload/text", "/ui"])
def test_a_monitor_may_not_what_only_an_operator_may(guard, path):
    assert (watched(guard, path).status, watched(guard, path).error["code"]) == (403, "operator-only")


def test_a_monitor_gets_no_answer_of_a_model_and_a_client_no_figures(guard):
    watched(guard, "/running")
    assert guard.post(question("Hello.", model="text"), key="key-of-watch").error["code"] == "model-not-found"
    assert guard.get("/engine-metrics/text", "key-of-first").error["code"] == "operator-only"


def test_an_operator_unloads_and_a_client_does_not(guard):
    assert content(guard.post(question("Hello.", model="text"))) == "OK"
    path = "/api/models/unload/text"

    assert guard.post(b"", path=path, Content_Length="0").status == 403
    assert "text" in guard.get("/running", "operator-key").body.decode()
    assert guard.post(b"", path=path, key="operator-key", Content_Length="0").status == 200
    running = json.loads(guard.get("/running", "operator-key").body)["running"]
    assert "text" not in [one["model"] for one in running]


@pytest.fixture
def steward(guard):
    """The exporter's own client of the guard, with a key that may have idle models unloaded."""
    guard.set_keys(steward=["key-of-steward"], first=["key-of-first"], operator=["operator-key"])
    host, port = guard.address
    return LlamaSwap(f"http://{host}:{port}", {"Authorization": "Bearer key-of-steward"}, is_door=True)


def loaded(exporters):
    return {one.model: one.state for one in exporters.residents()}


def test_an_idle_model_is_unloaded_for_a_steward_and_loaded_again_by_its_next_request(guard, steward):
    assert content(guard.post(question("Hello.", model="text"))) == "OK"
    last = steward.requests()[-1]

    assert steward.unload_idle("text") is True

    assert "text" not in loaded(steward)
    assert steward.unload_idle("text") is None
    assert steward.requests()[-1] == last  # nothing was asked of a model
    assert content(guard.post(question("Hello.", model="text"))) == "OK"


def test_a_model_that_answers_a_stream_is_not_unloaded_and_the_stream_ends_whole(guard, steward):
    with guard.connect() as connection:
        connection.sendall(stream_of("slow", 120))
        received = connection.recv(1 << 16)
        assert steward.unload_idle("slow") is False
        while b"[DONE]" not in received:
            received += connection.recv(1 << 16)
    assert received.count(b"data: ") > 120
    wait_for(lambda: steward.unload_idle("slow") is True, what="the model's end, when it is idle")


def test_a_request_that_passed_another_way_is_not_cut(guard, steward, stack):
    """corral's own commands reach llama-swap without the guard, which then counts none."""
    client = stack.running.client()
    with socket.create_connection(("127.0.0.1", stack.running.door.swap_port), 60) as connection:
        connection.sendall(stream_of("slow", key=client.headers["Authorization"].removeprefix("Bearer ")))
        received = b""
        while received.count(b"data: ") < 3:
            received += connection.recv(1 << 16)
        assert steward.unload_idle("slow") is False
        before = received.count(b"data: ")
        while received.count(b"data: ") < before + 20:
            more = connection.recv(1 << 16)
            assert more
            received += more


def asked(guard, answers):
    answers.append(guard.post(question("Hello.", model="text")))


def test_requests_that_race_with_the_unloading_get_whole_answers(guard, steward):
    for _ in range(12):
        assert content(guard.post(question("Hello.", model="text"))) == "OK"
        answers = []
        race = [threading.Thread(target=steward.unload_idle, args=("text",))]
        race += [threading.Thread(target=asked, args=(guard, answers)) for _ in range(3)]
        for one in race:
            one.start()
        for one in race:
            one.join()
        assert [content(one) for one in answers] == ["OK"] * 3


@pytest.mark.parametrize("key", ["key-of-first", "key-of-watch"])
def test_a_client_and_a_monitor_unload_no_model(guard, key):
    assert content(guard.post(question("Hello.", model="text"))) == "OK"
    watched(guard, "/running")
    answer = guard.post(b"", path="/engine-yield/text", key=key, Content_Length="0")
    assert (answer.status, answer.error["code"]) == (403, "operator-only")
    assert '"text"' in guard.get("/running", "operator-key").body.decode()


def test_keys_are_replaced_under_a_running_stream(guard):
    with guard.connect() as connection:
        connection.sendall(stream_of("slow", 30))
        received = connection.recv(1 << 16)

        guard.set_keys(first=["new-key"], operator=["operator-key"])

        assert guard.post(question("Hello.", model="text")).status == 401
        assert content(guard.post(question("Hello.", model="text"), key="new-key")) == "OK"
        while data := connection.recv(1 << 16):
            received += data
    assert b"data: [DONE]" in received


def test_a_guard_that_is_stopped_lets_a_stream_end(guard):
    with guard.connect() as connection:
        connection.sendall(stream_of("slow", 30))
        received = connection.recv(1 << 16)
        assert received

        assert guard.stop() == 0

        while data := connection.recv(1 << 16):
            received += data
    assert b"data: [DONE]" in received


@pytest.fixture
def web():
    """The address of a server that counts who connects to it, and the count."""
    hits = []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    hits.append(connection.recv(1000))
                    connection.sendall(b"HTTP/1.1 404 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", hits
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def chat(*parts):
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": list(parts)}], "max_tokens": 2}


def messages(*parts, path="/v1/messages"):
    return path, {"messages": [{"role": "user", "content": list(parts)}], "max_tokens": 2}


def forms(host):
    """Every way in which a request makes the pinned engine connect to *host*."""
    url = f"http://{host}/x"
    source = {"type": "image", "source": {"type": "url", "url": url}}
    return {
        "an image": chat({"type": "image_url", "image_url": {"url": url}}),
        "a video": chat({"type": "video_url", "video_url": {"url": url}}),
        "a video's data": chat({"type": "input_video", "input_video": {"data": url}}),
        "a video's url": chat({"type": "input_video", "input_video": {"url": url}}),
        "a user's name": chat({"type": "image_url", "image_url": {"url": f"http://user@{host}/x"}}),
        "a host that is none": chat({"type": "image_url", "image_url": {"url": f"http://images.example/x@{host}"}}),
        "Anthropic's image": messages(source),
        "a tool's image": messages({"type": "tool_result", "tool_use_id": "a", "content": [source]}),
        "an image to be counted": messages(source, path="/v1/messages/count_tokens"),
        "an image of a response": (
            "/v1/responses",
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]},
        ),
        "an image of a response that is called a call": (
            "/v1/responses",
            {"type": "tool_use", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]},
        ),
    }


@pytest.mark.parametrize("form", forms(""))
def test_what_the_engine_would_fetch_is_refused(guard, stack, web, tmp_path, form):
    host, hits = web
    path, body = forms(host)[form]
    assert content(guard.post(question("red", model="vision"))) == "red"  # it is loaded
    engine = f"http://127.0.0.1:{stack.ports['vision']}"
    post(engine + path, body, api_key=(stack.running.folder / "llama-swap.key").read_text())
    assert len(hits) == 1, "the engine does not fetch it: the form is no test"

    answer = guard.post({"model": "vision", **body}, path=path)

    assert (answer.status, answer.error["code"], len(hits)) == (400, "remote-media", 1)
    text = json.dumps({"model": "vision", **body}).replace("_url", "\\u005furl").replace("http", "\\u0068ttp")
    hidden = guard.post(text.encode(), path=path)
    assert (hidden.status, hidden.error["code"], len(hits)) == (400, "remote-media", 1)


def test_without_llama_swap_there_is_a_502(tmp_path):
    with run_guard(tmp_path, free_port()) as guard:
        answer = guard.get("/health")

    assert (answer.status, answer.error["code"]) == (502, "llama-swap-down")

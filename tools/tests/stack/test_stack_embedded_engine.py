"""The embedded engine with the tiny models: what llama-server promises, in a real process."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import sys
import urllib.request
from types import SimpleNamespace

import psutil
import pytest

from corral.demo import tiny_gguf
from corral.demo.tiny_weights import COLOURS, MOST_IMAGES
from corral.files import kept_closed
from corral.smoke.images import data_url, solid_png
from corral.vram.gguf_header import parse
from corral.vram.image_tokens import image_tokens
from tests.support.engine_process import chat, engine, get, post, question, run_engine, wait_for

pytestmark = pytest.mark.timeout(120)

LINES = 10_000
TEN = ("red", "green", "blue", "yellow", "white", "black", "blue", "red", "yellow", "green")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_gguf.write_all(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def text(tiny, tmp_path_factory):
    with engine(tmp_path_factory.mktemp("text"), "-m", tiny.text, "--metrics") as running:
        running.wait_until_ready()
        yield running.root


@pytest.fixture(scope="module")
def vision(tiny, tmp_path_factory):
    flags = ("-m", tiny.vision, "--mmproj", tiny.projector, "--image-max-tokens", "64")
    with engine(tmp_path_factory.mktemp("vision"), *flags) as running:
        running.wait_until_ready()
        yield running.root


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A model of 100 MB: slow to load, slow to answer."""
    path = tmp_path_factory.mktemp("slow") / "slow.gguf"
    tiny_gguf.write_text(path, n_ff=50_000)
    return path


def test_a_text_model_answers_ok(text):
    choice = chat(text, "Say something.", temperature=1.0)
    assert (choice["message"]["content"], choice["finish_reason"]) == ("OK", "stop")


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (["Which colours?", "red", "blue"], "red, blue"),
        (["Which colours?", "blue", "red"], "blue, red"),
        (["red", "and then", "blue", "?"], "red, blue"),
        (["blue", "Which colour?"], "blue"),
        ([*TEN, "Which colours?"], ", ".join(TEN)),
        ([*TEN[::-1], "Which colours?"], ", ".join(TEN[::-1])),
        (["red, blue", "white", "red"], "white, red"),
        (["No image."], "OK"),
    ],
    ids=["red-blue", "blue-red", "text-between", "one", "ten", "ten-backwards", "colours-in-the-text", "none"],
)
def test_a_vision_model_names_every_image_in_its_order(vision, content, answer):
    assert chat(vision, *content, temperature=1.0)["message"]["content"] == answer


def test_more_images_than_it_can_count_end_the_answer(vision):
    shown = [TEN[index % len(TEN)] for index in range(MOST_IMAGES + 2)]
    choice = chat(vision, *shown, max_tokens=60)
    assert (choice["message"]["content"], choice["finish_reason"]) == (", ".join(shown[:MOST_IMAGES]), "stop")


def test_every_image_is_named_in_the_array_of_a_schema(vision):
    items = {"type": "array", "items": {"enum": sorted(COLOURS)}, "minItems": len(TEN), "maxItems": len(TEN)}
    schema = {"type": "object", "properties": {"colours": items}, "required": ["colours"]}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    answer = chat(vision, *TEN, "Which?", response_format=form, max_tokens=100)["message"]["content"]
    assert json.loads(answer) == {"colours": list(TEN)}


@pytest.fixture(scope="module", params=[64, 1024])
def limited(request, tiny, tmp_path_factory):
    """The vision model with a limit of tokens an image: the limit, and its address."""
    flags = ("-m", tiny.vision, "--mmproj", tiny.projector, "--image-max-tokens", str(request.param), "-np", "1")
    with engine(tmp_path_factory.mktemp("limited"), *flags) as running:
        running.wait_until_ready()
        yield request.param, running.root


@pytest.mark.parametrize("side_px", [20, 224, 250, 256, 272, 300, 896])
def test_an_image_takes_the_tokens_that_follow_from_the_header(limited, tiny, side_px):
    """Whatever the lock refuses for want of room is computed from these."""
    most, root = limited
    taken = prompt_tokens(root, side_px) - prompt_tokens(root, None)
    header = parse(tiny.projector.read_bytes())
    assert taken == image_tokens(header, side_px, most=most)


def prompt_tokens(root, side_px):
    body = question("What?", max_tokens=1)
    if side_px is not None:
        url = data_url(solid_png("red", side_px))
        body["messages"][0]["content"].append({"type": "image_url", "image_url": {"url": url}})
    status, answer = post(f"{root}/v1/chat/completions", body)
    assert status == 200, answer
    return json.loads(answer)["usage"]["prompt_tokens"]


def test_a_thinking_model_reasons_apart_from_its_answer(tiny, tmp_path):
    with engine(tmp_path, "-m", tiny.thinking, "--reasoning", "auto") as running:
        running.wait_until_ready()
        message = chat(running.root, "Think.")["message"]
        assert (message["reasoning_content"], message["content"]) == ("hm", "OK")
        cut = chat(running.root, "Think.", max_tokens=2)
        assert (cut["message"]["content"], cut["finish_reason"]) == ("", "length")


def test_reasoning_off_answers_immediately(tiny, tmp_path):
    with engine(tmp_path, "-m", tiny.thinking, "--reasoning", "off") as running:
        running.wait_until_ready()
        message = chat(running.root, "Think.")["message"]
        assert message["content"] == "OK"
        assert not message.get("reasoning_content")


def test_a_json_schema_is_obeyed_with_the_known_answer(vision):
    schema = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    answer = chat(vision, "Which?", "red", "blue", response_format=form, temperature=0)["message"]["content"]
    assert json.loads(answer) == {"colour": "red, blue"}


def test_without_an_end_exactly_the_requested_tokens_arrive(text):
    choice = chat(text, "Go on.", ignore_eos=True, max_tokens=50)
    assert choice["finish_reason"] == "length"


def test_metrics_are_llama_servers_own(text):
    status, body = get(f"{text}/metrics")
    assert status == 200
    assert "llamacpp:prompt_tokens_total" in body


@pytest.fixture
def held(tmp_path):
    """A model whose load does not end until ``release()``."""
    path = tmp_path / "held.gguf"
    tiny_gguf.write_text(path)
    with contextlib.ExitStack() as hold:
        assert hold.enter_context(kept_closed(path))
        yield SimpleNamespace(path=path, release=hold.close)


def test_while_loading_it_answers_503(held, tmp_path):
    with engine(tmp_path, "-m", held.path) as running:
        status, body = wait_for(lambda: (answer := get(f"{running.root}/health"))[0] and answer, what="an answer")
        assert status == 503, body
        assert json.loads(body)["error"]["type"] == "unavailable_error"
        held.release()
        running.wait_until_ready()


def test_terminated_while_loading_it_dies_by_the_signal(held, tmp_path):
    with engine(tmp_path, "-m", held.path) as running:
        wait_for(lambda: get(f"{running.root}/health")[0] == 503, what="loading")
        running.process.terminate()
        assert running.process.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_well_on_a_signal(tiny, tmp_path, number):
    with engine(tmp_path, "-m", tiny.text) as running:
        running.wait_until_ready()
        # It answers a moment before it listens to signals; until then it dies by them, as while loading.
        wait_for(lambda: running.catches(number), what="a signal handler")
        running.process.send_signal(number)
        assert running.process.wait(10) == 0


def test_terminated_while_answering_it_ends_immediately(slow, tmp_path):
    with engine(tmp_path, "-m", slow) as running:
        running.wait_until_ready()
        body = json.dumps(question("Go on.", stream=True, ignore_eos=True, max_tokens=1500)).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{running.root}/v1/chat/completions", data=body, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as stream:
            assert stream.readline().startswith(b"data: ")
            running.process.terminate()
            assert running.process.wait(5) == 0
            with pytest.raises(http.client.IncompleteRead):
                stream.read()


def test_a_missing_model_exits_1_with_the_reason():
    done = run_engine("-m", "/nowhere/model.gguf", "--port", "0")
    assert done.returncode == 1
    assert "/nowhere/model.gguf" in done.stderr


def test_a_broken_model_exits_1(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model")
    done = run_engine("-m", broken, "--port", "0")
    assert done.returncode == 1
    assert "invalid magic characters" in done.stderr


def test_what_the_engine_logged_is_written_before_it_exits():
    script = f"""
import ctypes, os
from corral.engine import embedded
_, library = embedded.load()
log = embedded.symbol(library, "_Z15common_log_mainv")
log.restype = ctypes.c_void_p
for number in range({LINES}):
    library._Z14common_log_addP10common_log14ggml_log_levelPKcz(ctypes.c_void_p(log()), 4, b"line of the log\\n")
embedded.flush_log()
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout + done.stderr).count("line of the log") == LINES


def test_a_bad_flag_exits_1_in_llama_servers_words():
    done = run_engine("--no-mmap")
    assert (done.returncode, done.stderr.strip()) == (1, "error: invalid argument: --no-mmap")


def test_a_port_in_use_exits_1(text, tiny):
    done = run_engine("-m", tiny.text, "--host", "127.0.0.1", "--port", text.rpartition(":")[2])
    assert done.returncode == 1
    assert "couldn't bind" in done.stderr


def test_without_a_model_it_is_refused():
    done = run_engine("--port", "0")
    assert done.returncode == 1
    assert "no model given" in done.stderr


def test_help_and_version_are_llama_servers(tmp_path):
    assert "--mmproj" in run_engine("--help").stdout
    version = run_engine("--version")
    assert version.returncode == 0
    assert "version:" in version.stdout + version.stderr


@pytest.mark.parametrize(
    ("flags", "slots", "context"), [([], 4, 2048), (["-np", "2"], 2, 1024)], ids=["auto-shares-all", "two-halve-it"]
)
def test_slots_share_the_context_as_llama_server_does(tiny, tmp_path, flags, slots, context):
    with engine(tmp_path, "-m", tiny.text, *flags) as running:
        running.wait_until_ready()
        props = json.loads(get(f"{running.root}/props")[1])
        assert (props["total_slots"], props["default_generation_settings"]["n_ctx"]) == (slots, context)


def test_an_image_to_a_text_model_is_an_error(text):
    status, body = post(f"{text}/v1/chat/completions", question("Which?", "red"))
    assert status == 500
    assert "mmproj" in body


def test_a_crash_would_leave_no_core(tiny, tmp_path):
    with engine(tmp_path, "-m", tiny.text) as running:
        running.wait_until_ready()
        process = psutil.Process(running.process.pid)
        assert process.rlimit(psutil.RLIMIT_CORE) == (0, 0)

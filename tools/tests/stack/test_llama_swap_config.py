"""What Terraform renders, in the hands of the real llama-swap.

A small program stands in for llama-server: it writes down the words it was started with and answers every request, so
that only llama-swap's own behaviour shows.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import unicodedata
import urllib.request
from functools import partial
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from corral.engine import binaries, ports
from corral.terraform import local
from tests.support.engine_process import free_port, get, wait_for
from tests.support.locked_catalog import SMALLEST_INTENT, write_catalog, write_lock
from tests.support.properties import examples

RECORDER = """\
#!{python}
import http.server, json, pathlib, sys
record = pathlib.Path({folder!r}) / "words.json"
record.write_text(json.dumps(sys.argv))
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{{}}")
    do_POST = do_GET
    def log_message(self, *args): pass
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Answer).serve_forever()
"""

NASTY_WORDS = [
    "",
    " ",
    "two words",
    "  spaces  around  ",
    "tab\there",
    "it's",
    "'",
    "''",
    '"',
    'say "hello"',
    '{"enable_thinking": false, "note": "it\'s <b> & \\"c\\""}',
    "\\",
    "\\\\",
    "ends with \\",
    "C:\\models\\x.gguf",
    "\\n is not a newline",
    "#",
    "# no comment",
    "a#b",
    "first line\nsecond line",
    "\n",
    "\n\n",
    "eaten?\\\nno",
    "line\n# not a comment\nline",
    "line\n   # indented\n",
    "carriage\r\nreturn",
    "$HOME $(id) `id` $$ {x}",
    "{{ jinja }} {% if x %}",
    "%d%%",
    "*?[a-z]~!;|&<>()",
    "é ü 漢字 🐎",
    "line\u2028separator \u0085 next \u00a0 space",
    "\ufeffmark",
    "\x01\x7f\x1b[31m",
    "-1",
    "--flag=with space",
    "---\n...\n: yaml? & *anchor !tag |\n",
    "0x10",
    "x" * 5000,
]


WORDS = (
    (
        st.text(st.sampled_from("'\"\\\n\r\t #;&*~!=$-{}%a0"), max_size=4)
        | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9)
    )
    .map(partial(unicodedata.normalize, "NFC"))  # as Terraform reads them
    .filter(lambda word: "${" not in word)
)
"""What a lock may have in an argv, often with what shells and YAML give a meaning."""


@pytest.fixture
def engine(tmp_path):
    program = tmp_path / "the engine" / "it's llama-server"
    program.parent.mkdir()
    program.write_text(RECORDER.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(0o755)
    return program


@contextlib.contextmanager
def llama_swap(config: Path, port: int):
    """llama-swap with *config* on *port*: yields a function (path, body or None) -> decoded answer."""
    log = (config.parent / "llama-swap.log").open("w")
    command = [str(binaries.llama_swap()), "-config", str(config), "-listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def ask(path: str, body: dict | None = None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", data=data, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
        return json.loads(text) if text.startswith(("{", "[")) else text

    try:
        wait_for(lambda: process.poll() is not None or get(f"http://127.0.0.1:{port}/health")[0], what="llama-swap")
        assert process.poll() is None, Path(log.name).read_text()
        yield ask
    finally:
        process.terminate()
        process.wait(40)
        log.close()


def rendered(tmp_path: Path, catalog: Path, engine: Path, start_port: int) -> Path:
    store = tmp_path / "the store"
    config = tmp_path / "llama-swap.yaml"
    text = local.render_local(catalog, store, engine, state=tmp_path / "state", start_port=start_port)
    config.write_text(text, encoding="utf-8")
    return config


def require_unchanged(tmp_path, engine, words):
    """Start the engine by a lock whose argv has *words*, and compare them with those that it was started with."""
    argv = ["llama-server", "-m", "${STORE}/text/model.gguf", *words, "--port", "${PORT}", "last\n#"]
    catalog = write_catalog(tmp_path / "catalog", {"text": SMALLEST_INTENT}, argv)
    first = ports.for_engines(2, free_port())

    with llama_swap(rendered(tmp_path, catalog, engine, first + 1), first) as ask:
        ask("/v1/chat/completions", {"model": "text"})

    received = json.loads((tmp_path / "words.json").read_text())
    assert received == [
        str(engine), "-m", f"{tmp_path}/the store/text/model.gguf", *words, "--port", str(first + 1), "last\n#"
    ]  # fmt: skip


def test_every_word_of_an_argv_reaches_the_engine_unchanged(tmp_path, engine):
    require_unchanged(tmp_path, engine, NASTY_WORDS)


@settings(examples(5), phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(WORDS, min_size=100, max_size=150))
def test_so_does_any_word(tmp_path, engine, words):
    """An example takes seconds: each has many words, and a word that fails is not made smaller."""
    require_unchanged(tmp_path, engine, words)


def test_a_group_holds_one_model_and_groups_do_not_disturb_each_other(tmp_path, engine):
    catalog = write_catalog(
        tmp_path / "catalog",
        {
            "one": SMALLEST_INTENT,
            "two": {**SMALLEST_INTENT, "aliases": ["second"]},
            "eyes": {**SMALLEST_INTENT, "group": "side"},
        },
    )
    write_lock(catalog, {"one": 4000, "two": 4000, "eyes": 100})  # of 7680 MiB
    first = ports.for_engines(4, free_port())
    running = []
    with llama_swap(rendered(tmp_path, catalog, engine, first + 1), first) as ask:
        for model in ("one", "eyes", "second", "eyes", "one"):
            ask("/v1/chat/completions", {"model": model})
            running.append({entry["model"] for entry in ask("/running")["running"]})

    assert running == [{"one"}, {"one", "eyes"}, {"two", "eyes"}, {"two", "eyes"}, {"one", "eyes"}]


def test_the_model_list_of_llama_swap_is_the_catalog(tmp_path, engine):
    catalog = write_catalog(
        tmp_path / "catalog",
        {"b": {**SMALLEST_INTENT, "aliases": ["x"]}, "a.1": {**SMALLEST_INTENT, "modalities": ["text", "image"]}},
    )
    first = ports.for_engines(3, free_port())
    with llama_swap(rendered(tmp_path, catalog, engine, first + 1), first) as ask:
        listed = ask("/v1/models")["data"]

    assert [entry["id"] for entry in listed] == ["a.1", "b"]
    assert listed[0]["architecture"]["input_modalities"] == ["text", "image"]
    assert listed[0]["context_length"] == SMALLEST_INTENT["context"]


def test_every_key_of_the_configuration_is_one_that_this_llama_swap_reads(tmp_path, engine):
    catalog = write_catalog(tmp_path / "catalog", {"one": SMALLEST_INTENT})
    config = yaml.safe_load(rendered(tmp_path, catalog, engine, 5800).read_text())
    # Keys that are names of the catalog, not of llama-swap, are left out of the walk.
    named = {"one", "main"}
    free_form = {"metadata"}

    def keys(value) -> set[str]:
        if not isinstance(value, dict):
            return set()
        return {key for key in value if key not in named}.union(
            *(keys(inner) for key, inner in value.items() if key not in free_form)
        )

    # A Go program carries the tags of the structures that it decodes into.
    tags = set(re.findall(rb'yaml:"([A-Za-z_]+)', Path(binaries.llama_swap()).read_bytes()))
    assert b"cmdStop" in tags
    assert {key for key in keys(config) if key.encode() not in tags} == set()


def test_the_list_of_known_keys_belongs_to_the_pinned_llama_swap():
    known = json.loads((local.REPOSITORY / "terraform/modules/llama-swap-config/tests/known-keys.json").read_text())
    pinned = (local.REPOSITORY / "tools/engine/go.mod").read_text()

    assert f"github.com/mostlygeek/llama-swap {known['llama-swap']}" in pinned
    tags = set(re.findall(rb'yaml:"([A-Za-z_]+)', Path(binaries.llama_swap()).read_bytes()))
    listed = {key for keys in known["keys"].values() for key in keys}
    assert {key for key in listed if key.encode() not in tags} == set()

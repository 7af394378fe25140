"""Models that run together: the real llama-swap and engines behind what Terraform renders; the card is pretended."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread

import pytest
import yaml

from corral import paths
from corral.cli.main import main
from corral.demo import tiny_gguf
from corral.door import preflight_line
from corral.engine import binaries, environment, ports, stack
from corral.terraform import local
from tests.support.engine_process import ENGINE, chat, free_port, get, post, question, unanswered, wait_for
from tests.support.locked_catalog import write_sources
from tests.support.preflight import without_limits

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

SEED, REQUESTS = 19, 200
ROOM_MIB = 8000
"""Of the pretended card, whose reserve is 512 MiB."""
SEATS = {"coder": 6000, "chat": 4500, "eyes": 3000, "judge": 1500, "embed": 400}
"""Declared: the tiny models take less."""

SOURCE = """\
#!/bin/sh
# What a driver would report of a card on which each engine of this stack holds its seat.
grep -lz "^CORRAL_STACK=$CORRAL_STACK$" /proc/[0-9]*/environ 2>/dev/null |
  xargs grep -ahz '^CORRAL_SEAT=' 2>/dev/null | tr '\\0' '\\n' | sort -u |
  awk -F: -v room="$(cat "${0%/*}/room")" '{ held += $2 } END { print room - held ", " room }'
"""


def source_in(folder: Path) -> Path:
    """The script in *folder*; a file ``room`` beside it has the MiB of the card that tenants leave."""
    (folder / "room").write_text(str(ROOM_MIB))
    (folder / "source.sh").write_text(SOURCE)
    return folder / "source.sh"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for name in SEATS:
        tiny_gguf.write_text(folder / f"{name}.gguf")
    return folder


def catalog_of(folder: Path, files: Path, seats: dict[str, int], groups: dict[str, str]) -> Path:
    """A locked catalog of tiny models with *seats* on a card with room for ``ROOM_MIB``."""
    intents = {
        name: {
            "source": {"path": str(files / f"{name}.gguf"), "mmproj": "none"},
            "card": "laptop",
            "group": groups.get(name, "main"),
            "context": 512,
            "modalities": ["text"],
            "ttl": 0,
            "vram": {"declared_mib": mib, "why": "a test"},
        }
        for name, mib in seats.items()
    }
    write_sources(folder, intents, {"laptop": {"vram_mib": ROOM_MIB + 512, "reserve_mib": 512}})
    assert main(["lock", "--catalog", str(folder)]) == 0
    return folder


class Stack:
    """llama-swap with the configuration that Terraform renders of a catalog, and what it logs."""

    def __init__(self, folder: Path, catalog: Path, *, as_groups: bool = False) -> None:
        store, state, self._config = folder / "store", folder / "state", folder / "llama-swap.yaml"
        assert main(["fetch", "--catalog", str(catalog), "--store", str(store)]) == 0
        preflight = without_limits(folder / "preflight")
        self._port = free_port()
        first = ports.for_engines(len(SEATS), self._port)
        text = local.render_local(catalog, store, ENGINE, state=state, start_port=first, preflight=preflight)
        config = yaml.safe_load(text)
        self.router = config["routing"]["router"]
        if as_groups:  # as before there was a matrix
            members = {"swap": True, "exclusive": False, "persistent": False, "members": sorted(config["models"])}
            config["routing"]["router"] = {"use": "group", "settings": {"groups": {"main": members}}}
        self._config.write_text(yaml.safe_dump(config, sort_keys=False))
        self._log = folder / "llama-swap.log"
        self._source = source_in(folder)
        self._variables = {
            **environment.of_engine(GGML_NO_BACKTRACE="1", CORRAL_VRAM_SOURCE=f"sh {self._source}"),
            "CORRAL_STACK": uuid.uuid4().hex,
        }
        self.most_held = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Its address; meanwhile what its engines hold is read again and again."""
        words = [str(binaries.llama_swap()), "-config", str(self._config), "-listen", f"127.0.0.1:{self._port}"]
        url = f"http://127.0.0.1:{self._port}"
        with self._log.open("w") as log:
            process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=self._variables)
        ended = Event()
        watcher = Thread(target=self._watch, args=(ended,))
        try:
            wait_for(
                lambda: process.poll() is not None or ports.is_listening(process.pid, self._port), what="llama-swap"
            )
            assert process.poll() is None, self._log.read_text()
            watcher.start()
            yield url
        finally:
            ended.set()
            watcher.join()
            process.terminate()
            process.wait(40)

    def _watch(self, ended: Event) -> None:
        while not ended.is_set():
            read = subprocess.run(
                ["sh", str(self._source)], env=self._variables, capture_output=True, text=True, check=True
            )
            self.most_held = max(self.most_held, ROOM_MIB - int(read.stdout.split(",")[0]))

    @property
    def loads(self) -> int:
        """The loads that llama-swap counts as done."""
        return self._log.read_text().count("> Health check passed on ")

    @property
    def decisions(self) -> list[preflight_line.Record]:
        """Those of the preflight, one for each load; an engine that ends may have begun the line of another."""
        records = [f"preflight: {rest.splitlines()[0]}" for rest in self._log.read_text().split("preflight: ")[1:]]
        return [one for one in map(preflight_line.parse, records) if one and one.is_decision]


def mixed(names: Sequence[str]) -> list[str]:
    """The same requests each time: the small models more often than the large ones."""
    return random.Random(SEED).choices(sorted(names), weights=[1 / SEATS[name] for name in sorted(names)], k=REQUESTS)


def require_room(served: Stack) -> None:
    """Each engine started where its seat was free, and at no reading did the seats exceed the card."""
    assert [one.code for one in served.decisions] == ["room"] * served.loads
    assert all(one.need_mib <= one.free_mib for one in served.decisions)
    assert 0 < served.most_held <= ROOM_MIB


def test_the_same_200_requests_load_fewer_models_than_in_one_group_and_never_more_than_the_card_has(tmp_path, files):
    catalog = catalog_of(tmp_path / "catalog", files, SEATS, {})
    loads = {}
    for name in ("groups", "matrix"):
        (tmp_path / name).mkdir()
        served = Stack(tmp_path / name, catalog, as_groups=name == "groups")
        with served.running() as url:
            for model in mixed(list(SEATS)):
                chat(url, "Hello", model=model)
        require_room(served)
        loads[name] = served.loads
    swaps = sum(one != other for one, other in itertools.pairwise(["", *mixed(list(SEATS))]))

    assert loads["groups"] == swaps
    assert loads["matrix"] < loads["groups"] / 2, loads


def test_requests_at_the_same_time_never_take_more_than_the_card_has(tmp_path, files):
    served = Stack(tmp_path, catalog_of(tmp_path / "catalog", files, SEATS, {}))
    with served.running() as url, ThreadPoolExecutor(6) as several:
        list(several.map(lambda model: chat(url, "Hello", model=model), mixed(list(SEATS))[:60]))

    require_room(served)


def running(url: str) -> set[str]:
    return {one["model"] for one in json.loads(get(f"{url}/running")[1])["running"]}


def test_no_request_unloads_a_model_of_another_group(tmp_path, files):
    groups = {"eyes": "side", "judge": "side", "embed": "side"}
    seats = {"coder": 5000, "chat": 4000, "eyes": 2500, "judge": 2000, "embed": 400}
    served = Stack(tmp_path, catalog_of(tmp_path / "catalog", files, seats, groups))

    with served.running() as url:
        chat(url, "Hello", model="coder")
        for model, beside in (("eyes", set()), ("embed", {"eyes"}), ("judge", {"embed"}), ("eyes", {"embed"})):
            chat(url, "Hello", model=model)
            assert running(url) == {"coder", model, *beside}
        chat(url, "Hello", model="chat")
        assert running(url) == {"chat", "eyes", "embed"}

    require_room(served)


@pytest.fixture
def beside_a_tenant(tmp_path, files, monkeypatch):
    """`corral up` of chat and eyes, which fit together, beside embed and judge, as well; and what tenants leave."""
    seats = {"chat": 3000, "eyes": 3200, "embed": 400, "judge": 300}
    catalog = catalog_of(tmp_path / "catalog", files, seats, {"embed": "side", "judge": "side"})
    preflight, apply = str(without_limits(tmp_path / "preflight")), local._applied
    monkeypatch.setattr(local, "_applied", lambda *where: apply(*where[:-1], {**where[-1], "preflight": preflight}))
    monkeypatch.setenv("CORRAL_VRAM_SOURCE", f"sh {source_in(tmp_path)}")
    assert main(["up", "--detach", "--catalog", str(catalog), "--port", str(free_port())]) == 0
    yield stack.running(paths.state_dir()), tmp_path / "room"
    stack.stop(paths.state_dir(), drain_s=0)


def loaded(client) -> set[str]:
    return {one.model for one in client.residents()}


def test_a_model_gets_the_place_of_an_idle_one_of_its_group_where_a_tenant_has_the_room_beside_it(beside_a_tenant):
    running, room = beside_a_tenant
    for model in ("embed", "chat"):
        chat(running.endpoint, "Hello", model=model)
    room.write_text("6000")  # the seats of chat and embed, and 2600 MiB

    chat(running.endpoint, "Hello", model="eyes")
    assert loaded(running.client()) == {"eyes", "embed"}

    room.write_text("6600")  # the seats of all three
    chat(running.endpoint, "Hello", model="chat")
    assert loaded(running.client()) == {"chat", "eyes", "embed"}


def test_no_place_is_made_at_the_cost_of_another_group_or_of_a_request_under_way(beside_a_tenant):
    running, room = beside_a_tenant
    for model in ("embed", "chat"):
        chat(running.endpoint, "Hello", model=model)
    room.write_text("6000")
    stream, pid = unanswered(running, "chat", 4)

    status, body = post(f"{running.endpoint}/v1/chat/completions", question("Hello", model="eyes"))
    assert (status, json.loads(body)["error"]["code"]) == (503, "no-room")
    assert loaded(running.client()) == {"chat", "embed"}

    os.kill(pid, signal.SIGCONT)
    stream.join()
    assert stream.is_whole
    room.write_text("3500")  # the place of chat is too small for eyes, and with that of embed it would do
    status, body = post(f"{running.endpoint}/v1/chat/completions", question("Hello", model="eyes"))
    assert (status, json.loads(body)["error"]["code"]) == (503, "no-room")
    assert "embed" in loaded(running.client())


def test_a_group_gets_its_place_from_what_runs_beside_the_model_that_another_group_used_last(beside_a_tenant):
    running, room = beside_a_tenant
    for model in ("judge", "chat", "eyes", "chat"):
        chat(running.endpoint, "Hello", model=model)
    room.write_text("6550")  # embed lacks 350: the 300 of its own group's are not enough

    chat(running.endpoint, "Hello", model="embed")
    assert loaded(running.client()) == {"chat", "embed"}

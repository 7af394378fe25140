"""Other sentences of the agent change no verdict: `status`, `apply` and `why` read its code and fields alone.

Each end of the agent is a real one, of its files as they are and of a copy whose sentences were all replaced.  The rest
of the cluster is recorded (tests/unit/cluster_snapshots), because the sentences to be compared are the only difference.
"""

from __future__ import annotations

import ast
import copy
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from corral import agent
from corral.agent import termination
from corral.agent.errors import Code
from corral.cli.main import main
from corral.cluster import collect, summary
from corral.cluster.target import ClusterTarget
from corral.terraform import homelab
from corral.terraform.guard import ClusterGuard
from corral.why import in_cluster
from tests.support import faulty_hub as faults
from tests.support import reworded, smoke_catalog
from tests.support.cluster_faults import RECORDED, loaded
from tests.support.fake_kubernetes import fake_kubernetes
from tests.support.fetching import shop
from tests.support.locks import write_sealed

ERRORS = {"CannotRun", "Refused", "Failed", "becomes", "kind"}


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """For a code, the exit code and the message of both agents; each end is caused once."""
    folder = tmp_path_factory.mktemp("agents")
    agents = reworded.plain(folder / "plain"), reworded.reworded(folder / "reworded")

    @cache
    def cause(code):
        with shop(tmp_path_factory.mktemp("shop")) as made:
            return [ended(agent, made, code) for agent in agents]

    return cause


def edited(lock: Path, **changes: object) -> Path:
    document = json.loads(lock.read_text())
    document["models"]["m"]["files"][0].update(changes)
    return write_sealed(lock, document)


def occupy(shop):
    (shop.store.root / "m").mkdir(parents=True, exist_ok=True)
    return shop.lock


def be_slow(shop):
    shop.hub.faults = [faults.Slow(times=None, rate=1e5)]
    return shop.lock


def refuse(shop, status):
    shop.hub.faults = [faults.Status(on="", times=None, status=status)]
    return shop.lock


ENDS = {
    Code.STORE_FULL: lambda shop: {"lock": edited(shop.lock, size=10**15)},
    Code.STORE_UNUSABLE: lambda shop: {"lock": shop.lock, "store": shop.lock / "folder"},
    Code.STORE_OCCUPIED: lambda shop: {"lock": occupy(shop)},
    Code.NOT_ON_HUB: lambda shop: {"lock": edited(shop.lock, path="b.gguf")},
    Code.NOT_PERMITTED: lambda shop: {"lock": refuse(shop, 403)},
    Code.CONTENT_DIFFERS: lambda shop: {"lock": edited(shop.lock, sha256="0" * 64)},
    Code.HUB_ADDRESS: lambda shop: {"lock": shop.lock, "HF_ENDPOINT": "http://hub.example"},
    Code.HUB_UNREACHABLE: lambda shop: {"lock": refuse(shop, 503)},
    Code.HUB_ANSWER: lambda shop: {"lock": refuse(shop, 418)},
    Code.TOKEN_UNUSABLE: lambda shop: {"lock": shop.lock, "HF_TOKEN_PATH": "/nowhere/token"},
    Code.LOCK_UNUSABLE: lambda shop: {"lock": shop.folder / "none.json"},
    Code.MODEL_UNKNOWN: lambda shop: {"lock": shop.lock, "words": ("other",)},
    Code.STOPPED: lambda shop: {"lock": be_slow(shop), "stop": True},
}


def ended(folder, shop, code):
    how = {"HF_ENDPOINT": shop.hub.endpoint, **ENDS[code](shop)}
    lock, store, words = how.pop("lock"), how.pop("store", shop.store.root), how.pop("words", ())
    return reworded.ended(folder, "fetch", *words, "--store", str(store), "--lock", str(lock), **how)


def with_end(recorded, code, message):
    """The recorded cluster, whose agent ended with exit *code* and *message*."""

    def change(pod):
        pod = copy.deepcopy(pod)
        for one in pod["status"].get("initContainerStatuses") or ():
            for state in (one["state"], one.get("lastState") or {}):
                if state.get("terminated"):
                    state["terminated"].update(message=message, exitCode=code)
        return pod

    return replace(recorded, pods=tuple(map(change, recorded.pods)), logs={})


@pytest.fixture
def verdicts(tmp_path, monkeypatch, capsys):
    """What the commands make of a snapshot, without the *sentence* that they quote."""
    monkeypatch.setattr(homelab, "STACK", tmp_path / "stack")
    catalog = str(smoke_catalog.write(tmp_path / "catalog", {"text": {}}))

    def read(snapshot, sentence):
        for module in (summary, in_cluster, collect):
            monkeypatch.setattr(module, "collect", lambda *_words: snapshot)
        found = []
        for command in (["status"], ["why", "text"]):
            code = main([*command, "--context", "lab", "--catalog", catalog, "--json"])
            found.append((code, json.loads(capsys.readouterr().out)))
        guard = ClusterGuard(ClusterTarget(None, "lab", snapshot.namespace))
        reported = guard.inspect({"kubernetes_job_v1"})
        assert reported, "an apply would not have reported it"
        found.append([one.as_json() for one in reported])
        quoted = json.dumps(sentence.removesuffix("."), ensure_ascii=False)[1:-1]
        return json.loads(json.dumps(found, ensure_ascii=False, sort_keys=True).replace(quoted, "…"))

    with fake_kubernetes(tmp_path) as running:
        running.deployed("models: {}")
        monkeypatch.setenv("KUBECONFIG", str(running.kubeconfig))
        yield read


@pytest.mark.parametrize("code", ENDS)
@pytest.mark.parametrize("recording", ["file-not-on-hub", "download-retries"])
def test_other_sentences_of_the_agent_change_no_verdict(ends, verdicts, code, recording):
    (exit_code, message), (other_exit_code, other_message) = ends(code)
    is_, other = termination.read(message), termination.read(other_message)

    assert (is_.code, other_exit_code) == (code, exit_code)
    assert other.code is code
    assert other.sentence != is_.sentence
    assert other.fields.keys() == is_.fields.keys()
    recorded = loaded(RECORDED / f"{recording}.jsonl")
    before = verdicts(with_end(recorded, exit_code, message), is_.sentence)
    after = verdicts(with_end(recorded, exit_code, other_message), other.sentence)
    assert after == before


@pytest.mark.parametrize("name", ["store-full", "file-not-on-hub", "repo-gated", "download-retries"])
def test_a_recorded_fault_is_the_same_with_another_sentence(verdicts, name):
    recorded = loaded(RECORDED / f"{name}.jsonl")
    states = [
        state["terminated"]
        for pod in recorded.pods
        for one in pod["status"].get("initContainerStatuses") or ()
        for state in (one["state"], one.get("lastState") or {})
        if state.get("terminated")
    ]
    state = states[0]
    is_ = termination.read(state["message"])
    other = replace(is_, sentence="Gur fgber vf shyy.")

    before = verdicts(replace(recorded, logs={}), is_.sentence)
    after = verdicts(with_end(recorded, state["exitCode"], termination.as_text(other)), other.sentence)

    assert after == before


def _made(called: ast.expr) -> str:
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""


def test_every_error_of_the_agent_has_a_code():
    """By its source: an error without one would be unexplained wherever a program reads it."""
    found = [
        (file.name, node.lineno, {word.arg for word in node.keywords})
        for file in Path(agent.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _made(node.func) in ERRORS
    ]
    assert len(found) > 20
    assert [(file, line) for file, line, words in found if "code" not in words] == []


def test_a_termination_message_fits_and_keeps_its_code():
    long = termination.Termination(Code.STORE_FULL, {"path": "/ä" * 5000, "free_bytes": 1}, "ß\x01" * 9000)

    text = termination.as_text(long)

    assert 1000 < len(text.encode()) <= termination.LIMIT
    assert termination.read(text).code is Code.STORE_FULL
    assert termination.read(text).fields["free_bytes"] == 1


@pytest.mark.parametrize("text", ["", "Killed", "[]", '{"code": 1}', '{"code": "x", "fields": [], "sentence": ""}'])
def test_what_is_no_termination_message_is_no_reason(text):
    assert termination.read(text) is None


def test_a_code_of_another_version_is_no_known_one():
    text = '{"code": "brand-new", "fields": {"a": 1, "b": []}, "sentence": "x"}'

    assert termination.read(text) == termination.Termination(Code.OTHER, {"a": 1}, "x")

"""lock.json: its form, its seal, when it is stale, and what is reused of one that cannot be trusted."""

from __future__ import annotations

import difflib
import hashlib
import json
import shlex
import shutil
import subprocess

import pytest

from corral.agent.lock_file import read_lock, sealed
from corral.catalog import catalog, ledger
from corral.catalog.ledger import Ledger
from corral.cli.main import main
from corral.errors import LockStale, Refused
from corral.lock import lock
from corral.lock.pins import pins
from corral.vram.rules import RULES_VERSION
from tests.support.relocking import (
    COMMIT,
    NEXT,
    TEXT,
    Registry,
    codes,
    edit,
    edit_lock,
    locked,
    stale,
)

OURS, THEIRS = "c" * 40, "d" * 40


def test_a_lock_has_the_documented_shape(folder, hub):
    locked(folder, hub)

    document = json.loads((folder / "lock.json").read_text())
    assert list(document) == ["version", "seal", "sources", "images", "engine", "cards", "clients", "models"]
    assert (document["version"], document["images"]) == (2, {})
    assert document["cards"] == {
        "t4": {
            "vram_mib": 15360,
            "reserve_mib": 512,
            "compute_capability": None,
            "node": None,
            "tenants": {},
            "yield": None,
        }
    }
    entry = document["models"]["vision"]
    assert list(entry) == ["intent", "repo", "revision", "licence", "files", "argv", "predicted", "measured"]
    assert entry["files"][1] == {"path": "mmproj-F16.gguf", "role": "projector", "size": 10, "sha256": "c" * 64}
    assert list(entry["predicted"]) == [
        *("engine", "rules_version", "headers", "context_trained", "gpu", "host", "rules", "gpu_bytes", "ladder"),
        *("projector_type", "unmeasured"),
    ]


def test_the_lock_holds_every_key_of_an_intent_defaults_filled(folder, hub):
    locked(folder, hub)

    models = json.loads((folder / "lock.json").read_text())["models"]
    source = {"repo": "org/text", "revision": "main", "quant": "Q4_K_M", "file": None, "path": None, "mmproj": "auto"}
    plain = {"source": source, "card": "t4", "task": "chat", "context": 4096, "modalities": ["text"], "parallel": 1}
    plain |= {"reasoning": "auto", "ttl": 600, "group": "main", "aliases": [], "args": {}, "unsafe": {}}
    rest = {"image_max_tokens": None, "images_per_request": None, "cache_ram_mib": 1024}
    rest |= {"vram": None, "smoke": None, "latency": [], "draft": None, "adapters": []}
    assert models["text"]["intent"] == plain | rest
    assert models["vision"]["intent"]["image_max_tokens"] == 1024


def test_the_lock_holds_the_clients_and_their_change_makes_it_stale(folder, hub):
    file = folder / "clients.yaml"
    file.write_text("clients:\n  tv: {requests: 1}\n  desk: {models: [vision, text], requests: 2}\n")
    locked(folder, hub)

    document = json.loads((folder / "lock.json").read_text())
    assert list(document["clients"].items()) == [
        ("desk", {"models": ["text", "vision"], "requests": 2, "description": None}),
        ("tv", {"models": None, "requests": 1, "description": None}),
    ]
    file.write_text("clients:\n  tv: {requests: 2}\n")
    assert codes(folder) == {"clients.yaml": "changed"}


def test_every_source_is_named_with_the_sha256_of_its_bytes(folder, hub, images):
    ledger.write(folder, Ledger())
    (folder / "models" / ".text.yaml.swp").write_text("an editor's")
    (folder / "models" / ".#text.yaml").symlink_to("nowhere")
    locked(folder, hub, image_digest=Registry())

    sources = json.loads((folder / "lock.json").read_text())["sources"]
    expected = ["cards/t4.yaml", "images.yaml", "measured.json", "models/text.yaml", "models/vision.yaml"]
    assert list(sources) == expected
    for path, digest in sources.items():
        assert digest == hashlib.sha256((folder / path).read_bytes()).hexdigest()


def test_the_seal_is_the_sha256_of_the_file_with_an_empty_seal(folder, hub):
    locked(folder, hub)

    content = (folder / "lock.json").read_bytes()
    seal = json.loads(content)["seal"]
    empty = content.replace(f'  "seal": "{seal}"'.encode(), b'  "seal": ""')
    assert len(empty) == len(content) - 64
    assert seal == hashlib.sha256(empty).hexdigest()


def test_a_lock_from_before_latency_budgets_is_read_and_fresh(folder, hub):
    locked(folder, hub)
    file = folder / "lock.json"
    document = json.loads(file.read_text())
    for entry in document["models"].values():
        del entry["intent"]["latency"]
    file.write_text(sealed(json.dumps(document | {"seal": ""}, indent=2) + "\n"))

    assert lock.read(file).models["text"].intent.latency == ()
    assert codes(folder) == {}


def test_a_lock_from_before_tasks_and_extras_is_read_fresh_and_its_command_line_the_same(folder, hub):
    locked(folder, hub)
    file = folder / "lock.json"
    before = lock.read(file)
    document = json.loads(file.read_text())
    for entry in document["models"].values():
        for key in ("task", "draft", "adapters"):
            del entry["intent"][key]
        for side in (entry["predicted"][name] for name in ("gpu", "host") if entry["predicted"][name]):
            del side["adapters"], side["draft"]
    file.write_text(sealed(json.dumps(document | {"seal": ""}, indent=2) + "\n"))

    assert lock.read(file).models == before.models
    assert {entry.intent.task for entry in before.models.values()} == {"chat"}
    assert codes(folder) == {}


def test_the_budgets_of_a_lock_are_in_one_order(folder, hub):
    budgets = [f"{{consumer: {name}, prompt_tokens: 1, answer_tokens: 1, p95_seconds: 1}}" for name in ("b", "a")]
    (folder / "models" / "text.yaml").write_text(f"{TEXT}latency: [{', '.join(budgets)}]\n")
    locked(folder, hub)

    assert [one.consumer for one in lock.read(folder / "lock.json").models["text"].intent.latency] == ["a", "b"]
    assert codes(folder) == {}


def test_a_lock_is_ascii_whatever_its_catalog_holds(folder, hub):
    """Terraform normalises every other text that it reads, and would find another seal."""
    (folder / "models" / "text.yaml").write_text(TEXT + 'smoke: {prompt: "Grüße, e\u0301, 🐎?"}\n', encoding="utf-8")
    locked(folder, hub)

    assert (folder / "lock.json").read_text(encoding="ascii")
    assert lock.read(folder / "lock.json").models["text"].intent.smoke.prompt == "Grüße, é, 🐎?"


def test_each_fact_stands_on_a_line(folder, hub):
    locked(folder, hub)
    before = (folder / "lock.json").read_text().splitlines()
    edit(folder, "text", "card: t4", "card: t4\nttl: 60")
    locked(folder, hub)

    after = (folder / "lock.json").read_text().splitlines()
    assert len(before) == len(after)
    changed = [new.strip() for old, new in zip(before, after, strict=True) if old != new]
    assert [line.partition(":")[0] for line in changed] == ['"seal"', '"models/text.yaml"', '"ttl"']


def test_the_agent_reads_what_was_written(folder, hub):
    locked(folder, hub)

    read = read_lock(folder / "lock.json")

    assert [file.role for file in read.models["vision"].files] == ["model", "projector"]


def test_the_same_catalog_gives_the_same_bytes(folder, hub):
    locked(folder, hub)
    first = (folder / "lock.json").read_bytes()
    (folder / "lock.json").unlink()
    locked(folder, hub)

    assert (folder / "lock.json").read_bytes() == first


def test_a_model_that_was_added_is_named_by_its_file(folder, hub):
    locked(folder, hub)
    (folder / "models" / "more.yaml").write_text(TEXT)

    assert stale(folder) == {"models/more.yaml": "was added since it was locked"}


def test_a_missing_lock_is_stale(folder):
    assert stale(folder) == {"lock.json": "does not exist"}


def test_what_needs_a_lock_is_refused_with_the_next_command(folder, hub):
    with pytest.raises(LockStale, match=r"lock\.json does not exist") as caught:
        lock.require_fresh(catalog.load(folder))
    assert caught.value.next_step == f"corral lock --catalog {folder}"

    locked(folder, hub)
    assert lock.require_fresh(catalog.load(folder)).models.keys() == {"text", "vision"}
    edit(folder, "text", "4096", "8192")
    with pytest.raises(LockStale, match=r"  models/text\.yaml has changed since it was locked"):
        lock.require_fresh(catalog.load(folder))


ACCIDENTS = {
    "an edited word": lambda text: text.replace('"4096"', '"9999"', 1),
    "an edited figure": lambda text: text.replace('"gpu_bytes": 1', '"gpu_bytes": 2', 1),
    "another layout": lambda text: json.dumps(json.loads(text)),
    "another seal": lambda text: text.replace('"seal": "', '"seal": "0', 1),
    "no seal": lambda text: "\n".join(line for line in text.splitlines() if '"seal"' not in line),
    "a line merged in": lambda text: text.replace('  "models": {', '  "images": {},\n  "models": {', 1),
    "line ends of another system": lambda text: text.replace("\n", "\r\n"),
    "version 1": lambda text: text.replace('"version": 2', '"version": 1'),
    "no version": lambda text: text.replace('  "version": 2,\n', ""),
    "a version in words": lambda text: text.replace('"version": 2', '"version": "2"'),
    "a byte order mark": lambda text: "\ufeff" + text,
    "a letter that is not UTF-8": lambda text: text.replace('"mit"', '"mit\udce9"', 1),
}
CODES = {
    "version 1": "version",
    "no version": "version",
    "a version in words": "version",
    "a byte order mark": "unreadable",
    "a letter that is not UTF-8": "unreadable",
}


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_of_a_lock_that_was_not_written_by_corral_only_the_commits_are_reused(folder, hub, engine, accident):
    locked(folder, hub, engine)
    whole = (folder / "lock.json").read_bytes()
    (folder / "lock.json").write_bytes(ACCIDENTS[accident](whole.decode()).encode(errors="surrogateescape"))
    assert codes(folder) == {"lock.json": CODES.get(accident, "seal")}
    with pytest.raises(LockStale, match=r"lock\.json "):
        lock.require_fresh(catalog.load(folder))
    with pytest.raises(LockStale, match=r"lock\.json "):
        lock.read(folder / "lock.json")
    hub.requests.clear()
    engine.requests.clear()
    hub.head = NEXT

    locked(folder, hub, engine)

    assert hub.requests == [("org/text", COMMIT), ("org/vision", COMMIT)]
    assert engine.requests == ["text", "vision"]
    assert (folder / "lock.json").read_bytes() == whole
    assert stale(folder) == {}


@pytest.mark.parametrize(
    ("harm", "commit"),
    [
        (lambda entry: entry.update(revision="main"), None),
        (lambda entry: entry.update(revision=COMMIT[:39]), None),
        (lambda entry: entry.update(repo="org/other"), None),
        (lambda entry: entry.update(repo=None), None),
        (lambda entry: entry["intent"]["source"].update(revision="v1"), None),
        (lambda entry: entry.pop("intent"), COMMIT),
        (lambda entry: entry.update(files="none"), COMMIT),
    ],
    ids=[
        "no commit",
        "half a commit",
        "another repository",
        "no repository",
        "another branch",
        "no intent",
        "no files",
    ],
)
def test_a_commit_of_such_a_lock_is_reused_where_it_is_the_models(folder, hub, harm, commit):
    locked(folder, hub)
    document = json.loads((folder / "lock.json").read_text())
    harm(document["models"]["text"])
    (folder / "lock.json").write_text(json.dumps(document))
    hub.requests.clear()

    locked(folder, hub)

    assert hub.requests == [("org/text", commit), ("org/vision", COMMIT)]


def test_a_commit_that_the_intent_names_wins_over_one_in_a_lock_that_cannot_be_trusted(folder, hub):
    locked(folder, hub)
    document = json.loads((folder / "lock.json").read_text()) | {"version": 1}
    for entry in document["models"].values():
        del entry["intent"]  # version 1 had none
    (folder / "lock.json").write_text(json.dumps(document))
    edit(folder, "text", "quant: Q4_K_M", f"quant: Q4_K_M, revision: {NEXT}")
    hub.requests.clear()

    locked(folder, hub)

    assert hub.requests[0] == ("org/text", None)


def test_upgrade_moves_on_from_a_lock_that_cannot_be_trusted_too(folder, hub):
    locked(folder, hub)
    (folder / "lock.json").write_text((folder / "lock.json").read_text() + " ")
    hub.requests.clear()

    locked(folder, hub, upgrade=["text"])

    assert hub.requests == [("org/text", None), ("org/vision", COMMIT)]


def test_an_unsafe_flag_is_in_the_intent_and_in_the_command_line_of_the_lock(folder, hub):
    unsafe = '{webui: {value: false, why: "No page is needed."}, log-file: {value: /l, why: "We read it."}}'
    edit(folder, "text", "card: t4", f"card: t4\nargs: {{temp: 0}}\nunsafe: {unsafe}")

    locked(folder, hub)

    document = json.loads((folder / "lock.json").read_text())["models"]["text"]
    assert document["intent"]["unsafe"] == {
        "log-file": {"value": "/l", "why": "We read it."},
        "webui": {"value": False, "why": "No page is needed."},
    }
    at = document["argv"].index("--temp")
    assert document["argv"][at : at + 6] == ["--temp", "0", "--log-file", "/l", "--no-webui", "--host"]
    assert stale(folder) == {}


def test_a_text_of_the_catalog_is_in_the_lock_and_its_change_makes_the_lock_stale(folder, hub):
    (folder / "files").mkdir()
    text = folder / "files" / "chat.jinja"
    text.write_text("{{ messages }}\ne\u0301\n", encoding="utf-8")
    edit(folder, "text", "card: t4", "card: t4\nargs: {chat-template-file: files/chat.jinja}")

    locked(folder, hub)

    document = json.loads((folder / "lock.json").read_text())
    entry = document["models"]["text"]
    assert document["sources"]["files/chat.jinja"] == hashlib.sha256(text.read_bytes()).hexdigest()
    assert entry["intent"]["args"] == {"chat-template": "{{ messages }}\n\u00e9\n"}
    assert entry["argv"][entry["argv"].index("--chat-template") + 1] == "{{ messages }}\n\u00e9\n"
    assert stale(folder) == {}

    text.write_text("{{ messages }}")
    assert stale(folder) == {"files/chat.jinja": "has changed since it was locked"}


OTHERWISE = {
    "other defaults": (lambda entry: entry["intent"].update(ttl=5), "derived", "was locked by another corral"),
    "another argv": (
        lambda entry: entry["argv"].extend(["--tools", "all"]),
        "derived",
        "was locked by another corral, which made other facts of its file: its command line has --tools all",
    ),
    "another engine": (lambda entry: entry["predicted"].update(engine="b1"), "engine", "was predicted by b1, and this"),
    "other rules": (
        lambda entry: entry["predicted"].update(rules_version=RULES_VERSION + 1),
        "rules",
        f"was predicted by rules of version {RULES_VERSION + 1}, and this corral has {RULES_VERSION}",
    ),
}


@pytest.mark.parametrize("other", OTHERWISE)
def test_an_entry_that_another_corral_wrote_is_stale_and_made_anew(folder, hub, engine, other):
    locked(folder, hub, engine)
    whole = (folder / "lock.json").read_bytes()
    harm, code, why = OTHERWISE[other]
    edit_lock(folder, lambda document: harm(document["models"]["text"]))
    engine.requests.clear()

    assert codes(folder) == {"text": code}
    assert stale(folder)["text"].startswith(why)
    with pytest.raises(LockStale, match="  text was "):
        lock.require_fresh(catalog.load(folder))

    locked(folder, hub, engine)
    assert engine.requests == ([] if other == "other defaults" else ["text"])
    assert (folder / "lock.json").read_bytes() == whole


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda entry: entry["predicted"].update(gpu_totally=1), r"models\.text\.predicted\.gpu_totally: unknown key"),
        (lambda entry: entry["predicted"].update(gpu_bytes=2), "add up to 1, not to gpu_bytes 2"),
        (lambda entry: entry["predicted"].pop("host"), "must have gpu and host"),
        (
            lambda entry: entry["predicted"].update(gpu=None, host=None, gpu_bytes=None, unmeasured="it crashed"),
            "is not predicted, and its intent declares nothing",
        ),
        (
            lambda entry: [
                entry["predicted"].update(gpu=entry["predicted"]["gpu"] | {"weights": 5 << 20}, gpu_bytes=5 << 20),
                entry["intent"].update(vram={"declared_mib": 4, "why": "hope"}),
            ],
            "declares 4 MiB, less than the 5 MiB predicted",
        ),
    ],
    ids=["unknown row", "another total", "half", "neither", "declared too low"],
)
def test_a_sealed_lock_that_contradicts_itself_is_refused(folder, hub, harm, why):
    locked(folder, hub)
    edit_lock(folder, lambda document: harm(document["models"]["text"]))

    with pytest.raises(LockStale, match=rf"is not a lock that this corral can read: .*{why}"):
        lock.read(folder / "lock.json")
    assert codes(folder) == {"lock.json": "content"}


MISFITS = {
    "a lost model": (lambda lock: lock["models"].pop("text"), r"models/text\.yaml in sources, and no text in models"),
    "an extra model": (
        lambda lock: lock["models"].update(more=lock["models"]["text"]),
        r"it has more in models, and no models/more\.yaml in sources",
    ),
    "a lost card": (lambda lock: lock["cards"].clear(), r"it has cards/t4\.yaml in sources, and no t4 in cards"),
    "an extra card": (
        lambda lock: lock["cards"].update(l4=lock["cards"]["t4"]),
        r"it has l4 in cards, and no cards/l4\.yaml in sources",
    ),
    "a card of nowhere": (
        lambda lock: lock["models"]["text"]["intent"].update(card="l4"),
        "text is on card l4, which is not in cards",
    ),
    "a client of nothing": (
        lambda lock: lock["clients"].update(desk={"models": ["gone"], "requests": 2, "description": None}),
        "client desk may use gone, which is not in models",
    ),
    "a nested value": (lambda lock: lock.update(images=nested(500)), "is not a lock that this corral can read"),
}


def nested(depth):
    return {"a": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_sealed_lock_whose_parts_do_not_fit_is_stale_with_the_offender_and_made_anew(folder, hub, misfit):
    locked(folder, hub)
    whole = (folder / "lock.json").read_bytes()
    harm, why = MISFITS[misfit]
    edit_lock(folder, harm)

    assert codes(folder) == {"lock.json": "content"}
    for read in (lambda: lock.read(folder / "lock.json"), lambda: lock.require_fresh(catalog.load(folder))):
        with pytest.raises(LockStale, match=why) as caught:
            read()
        assert caught.value.next_step == f"corral lock --catalog {folder}"

    locked(folder, hub)
    assert (folder / "lock.json").read_bytes() == whole


UNREADABLE = {
    "": "unreadable",
    "[]": "version",
    "[" * 100_000: "unreadable",
    "<<<<<<< HEAD": "merge",
}


@pytest.mark.parametrize("text", UNREADABLE, ids=["empty", "no object", "nested", "half a merge"])
def test_of_a_lock_without_any_object_nothing_is_reused_and_the_way_out_is_named(folder, text):
    (folder / "lock.json").write_text(text)

    assert codes(folder) == {"lock.json": UNREADABLE[text]}
    with pytest.raises(LockStale):
        lock.read(folder / "lock.json")
    with pytest.raises(Refused) as caught:
        pins(folder / "lock.json")
    again = f" && corral lock --catalog {folder}"
    if text.startswith("<"):
        assert "conflict markers of a merge" in caught.value.message
        assert caught.value.next_step == f"git -C {folder} checkout --ours lock.json{again}"
    else:
        assert "is not a lock that this corral can read" in caught.value.message
        assert caught.value.next_step.startswith("Restore it from version control")
        assert caught.value.next_step.endswith(f"rm {folder}/lock.json{again}")


def test_the_commands_that_restore_a_lock_are_quoted(tmp_path):
    folder = tmp_path / "my catalog"
    folder.mkdir()
    for text, words in {
        "": ["rm", f"{folder}/lock.json", "&&"],
        "<<<<<<< HEAD": ["git", "-C", str(folder), "checkout", "--ours", "lock.json", "&&"],
    }.items():
        (folder / "lock.json").write_text(text)
        with pytest.raises(Refused) as caught:
            pins(folder / "lock.json")
        command = shlex.split(caught.value.next_step.removeprefix("Restore it from version control, or write it anew:"))
        assert command == [*words, "corral", "lock", "--catalog", str(folder)]


WITHOUT_COMMITS = {**UNREADABLE, "null": "version", "\0": "unreadable", '{"version": 2,': "unreadable"}


@pytest.mark.parametrize("text", WITHOUT_COMMITS, ids=range(len(WITHOUT_COMMITS)))
def test_every_reader_of_a_lock_that_corral_lock_refuses_names_the_same_way_out(folder, text, capsys):
    (folder / "lock.json").write_text(text)
    readers = (lock.read, pins, read_lock, lambda path: lock.require_fresh(catalog.load(path.parent)))
    steps = set()
    for read in readers:
        with pytest.raises(Refused) as caught:
            read(folder / "lock.json")
        steps.add(caught.value.next_step.removesuffix(f" --catalog {folder}"))
    (step,) = steps
    assert step.endswith("lock.json && corral lock")

    for command in (["lock", "--check"], ["validate"]):
        main([*command, "--catalog", str(folder)])
        assert step in capsys.readouterr().err


@pytest.mark.parametrize("is_loop", [False, True], ids=["folder", "loop"])
def test_what_is_no_file_is_moved_away_by_the_next_command_of_every_reader(folder, is_loop):
    path = folder / "lock.json"
    path.symlink_to(path) if is_loop else path.mkdir()
    steps = set()
    for read in (lock.read, pins, read_lock):
        with pytest.raises(Refused, match="cannot be read") as caught:
            read(path)
        steps.add(caught.value.next_step)
    (step,) = steps

    subprocess.run(step, shell=True, check=True)
    assert lock.read(path) is None


def test_every_reader_names_the_markers_of_a_merge(folder, hub):
    locked(folder, hub)
    text = (folder / "lock.json").read_text()
    (folder / "lock.json").write_text(conflict(text, text.replace('"context": ', '"context": 1')))
    for read in (lock.read, read_lock):
        with pytest.raises(Refused, match="has the conflict markers of a merge") as caught:
            read(folder / "lock.json")
        assert caught.value.next_step.startswith("corral lock")


@pytest.mark.parametrize("read", [lock.read, pins, read_lock])
@pytest.mark.parametrize("merged", [False, True])
def test_a_lock_of_a_newer_corral_is_refused_with_its_version_and_never_removed(tmp_path, read, merged):
    text = '{"version": 3, "models": {}}\n'
    if merged and read is pins:
        text = f"<<<<<<< HEAD\n{text}=======\n{text.replace('3', '2')}>>>>>>> other\n"
    (tmp_path / "lock.json").write_text(text)

    with pytest.raises(Refused, match="has version 3, and this corral is older: it reads version 2") as caught:
        read(tmp_path / "lock.json")
    assert not isinstance(caught.value, LockStale)
    assert "Upgrade corral" in caught.value.next_step
    assert "rm " not in caught.value.next_step


def conflict(ours, theirs, *, base=None, end="\n"):
    """Where two texts differ, both with git's markers around them; the base too, as merge.conflictStyle has it."""
    lines = []
    left, right = ours.splitlines(), theirs.splitlines()
    for kind, a, b, c, d in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += left[a:b]
            continue
        middle = [] if base is None else ["||||||| 1234567", base]
        lines += ["<<<<<<< HEAD", *left[a:b], *middle, "=======", *right[c:d], ">>>>>>> other"]
    return "".join(line + end for line in lines)


@pytest.mark.parametrize("options", [{}, {"base": '  "neither": 1,'}, {"end": "\r\n"}], ids=["merge", "diff3", "CRLF"])
def test_a_merge_of_two_locks_keeps_the_commits_of_both_ours_first(folder, hub, options):
    hub.head = OURS
    locked(folder, hub)
    (folder / "models" / "mine.yaml").write_text(TEXT)
    locked(folder, hub)
    ours = (folder / "lock.json").read_text()
    (folder / "models" / "mine.yaml").unlink()
    (folder / "lock.json").unlink()
    (folder / "models" / "theirs.yaml").write_text(TEXT)
    hub.head = THEIRS
    locked(folder, hub)
    (folder / "models" / "mine.yaml").write_text(TEXT)
    merged = conflict(ours, (folder / "lock.json").read_text(), **options)
    assert merged.count("<<<<<<< ") > 3
    (folder / "lock.json").write_text(merged, newline="")
    assert codes(folder) == {"lock.json": "merge"}
    hub.requests.clear()
    hub.head = NEXT

    locked(folder, hub)

    entries = lock.read(folder / "lock.json").models
    assert {name: entry.revision for name, entry in entries.items()} == {
        "mine": OURS,
        "text": OURS,
        "theirs": THEIRS,
        "vision": OURS,
    }
    assert stale(folder) == {}


def test_of_the_sides_of_a_merge_the_one_counts_that_has_the_models_repository(folder, hub):
    hub.head = OURS
    locked(folder, hub)
    ours = (folder / "lock.json").read_text()
    edit(folder, "text", "org/text", "org/fork")
    hub.head = THEIRS
    locked(folder, hub)
    (folder / "lock.json").write_text(conflict(ours, (folder / "lock.json").read_text()))
    hub.requests.clear()

    locked(folder, hub)

    assert hub.requests == [("org/fork", THEIRS), ("org/vision", OURS)]


def test_of_a_merge_of_which_one_side_is_no_json_the_other_is_used(folder, hub):
    locked(folder, hub)
    whole = (folder / "lock.json").read_text()
    (folder / "lock.json").write_text(f"<<<<<<< HEAD\n{whole[:500]}\n=======\n{whole}>>>>>>> other\n")
    hub.requests.clear()
    hub.head = NEXT

    locked(folder, hub)

    assert (folder / "lock.json").read_text() == whole


@pytest.mark.skipif(shutil.which("git") is None, reason="the same without git is above")
def test_what_git_leaves_of_two_branches_that_both_locked_is_resolved(folder, hub, tmp_path):
    def git(*words, check=True):
        facts = ["user.name=a", "user.email=a@b", "commit.gpgsign=false", "init.defaultBranch=main"]
        options = [part for fact in facts for part in ("-c", fact)]
        return subprocess.run(["git", *options, *words], cwd=folder, check=check, capture_output=True, text=True)

    locked(folder, hub)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "Base")
    git("checkout", "-qb", "other")
    hub.head = THEIRS
    locked(folder, hub, upgrade=["vision"])
    git("commit", "-qam", "Upgrade vision")
    git("checkout", "-q", "main")
    hub.head = OURS
    (folder / "models" / "more.yaml").write_text(TEXT)
    locked(folder, hub, upgrade=["text"])
    git("add", ".")
    git("commit", "-qm", "Add more")
    merge = git("merge", "other", check=False)
    assert "CONFLICT" in merge.stdout
    assert "<<<<<<< " in (folder / "lock.json").read_text()
    hub.head = NEXT

    locked(folder, hub)

    commits = {name: entry.revision for name, entry in lock.read(folder / "lock.json").models.items()}
    assert commits == {"more": OURS, "text": OURS, "vision": THEIRS}


def test_a_lock_behind_a_link_is_written_where_it_is(folder, hub, tmp_path_factory):
    kept = tmp_path_factory.mktemp("elsewhere") / "lock.json"
    kept.write_text('{"version": 1, "models": {}}\n')
    (folder / "lock.json").symlink_to(kept)

    locked(folder, hub)

    assert (folder / "lock.json").is_symlink()
    assert "text" in lock.read(kept).models


def test_a_size_in_quotes_is_not_a_size(folder, hub):
    locked(folder, hub)
    edit_lock(folder, lambda document: document["models"]["text"]["files"][0].update(size="100"))

    why = r"is not a lock that this corral can read: models\.text\.files\[0\]\.size is '100'; it must be a number"
    with pytest.raises(LockStale, match=why):
        lock.read(folder / "lock.json")

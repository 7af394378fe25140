"""The lock: deterministic bytes, staleness by name, and only what changed is asked of hub and engine again."""

import json

import pytest

from corral.agent.lock_file import LockedFile, read_lock
from corral.catalog import catalog
from corral.catalog.digest import argv_sha256
from corral.engine.embedded import ENGINE
from corral.errors import CannotRun, EngineCannotMeasure, HubUnavailable, LockStale, Refused
from corral.hub.resolve import Resolved, resolve
from corral.lock import lock
from corral.lock.predict import EngineMeasurer, Measured
from corral.lock.predicted import RULES_VERSION, MemoryParts, Vram
from corral.lock.relock import relock

COMMIT, NEXT = "a" * 40, "b" * 40
TEXT = "source: {repo: org/text, quant: Q4_K_M}\ncard: t4\ncontext: 4096\nmodalities: [text]\n"
VISION = "source: {repo: org/vision, quant: Q4_K_M}\ncard: t4\ncontext: 4096\nmodalities: [text, image]\n"


class Hub:
    """Answers as the hub would, and remembers what it was asked: a resolver without a network."""

    def __init__(self):
        self.asked = []
        self.head = COMMIT

    def __call__(self, model, directory, *, revision=None):
        self.asked.append((model.source.repo, revision))
        commit = revision or self.head
        files = [LockedFile(path="m-Q4_K_M.gguf", role="model", size=100, sha256=commit[0] * 64)]
        if model.vision:
            files.append(LockedFile(path="mmproj-F16.gguf", role="projector", size=10, sha256="c" * 64))
        return Resolved(repo=model.source.repo, revision=commit, licence="mit", files=tuple(files))


class Engine(EngineMeasurer):
    """Answers for files that are made of nothing: 1 byte of weights, and remembers for whom it was asked."""

    def __init__(self, folder):
        super().__init__(folder)
        self.asked = []

    def measure(self, model_id, model, resolved, argv, known=()):
        self.asked.append(model_id)
        declared = lock.declared_by(model)
        parts = MemoryParts(weights=1, context=0, compute=0, projector=0)
        rows = {"gpu": parts, "host": parts, "declared": declared, "gpu_total": declared.bytes if declared else 1}
        return Measured(
            Vram(engine=ENGINE, rules_version=RULES_VERSION, argv_sha256=argv_sha256(argv), headers=(), **rows).sealed()
        )


@pytest.fixture
def hub():
    return Hub()


@pytest.fixture
def engine(folder):
    return Engine(folder)


@pytest.fixture
def folder(tmp_path):
    for name, text in {"models/text": TEXT, "models/vision": VISION, "cards/t4": "vram_mib: 15360\n"}.items():
        file = tmp_path / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return tmp_path


def edit(folder, model, old, new):
    file = folder / "models" / f"{model}.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def locked(folder, hub, engine=None, **options):
    """Lock *folder*, write it, and return the changes by model."""
    wanted = catalog.load(folder)
    result = relock(wanted, lock.read(wanted.lock_file), hub, engine or Engine(folder), **options)
    lock.write(wanted.lock_file, result.lock)
    return {change.name: change for change in result.changes}


def stale(folder):
    wanted = catalog.load(folder)
    return {item.name: item.reason for item in lock.stale(wanted, lock.read(wanted.lock_file))}


def test_a_lock_has_the_documented_shape(folder, hub):
    locked(folder, hub)

    entry = json.loads((folder / "lock.json").read_text())["models"]["vision"]
    assert list(entry) == ["intent_sha256", "source_sha256", "repo", "revision", "licence", "files", "argv", "vram"]
    assert entry["files"][1] == {"path": "mmproj-F16.gguf", "role": "projector", "size": 10, "sha256": "c" * 64}


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


def test_a_fresh_lock_asks_the_hub_nothing(folder, hub):
    locked(folder, hub)
    hub.asked.clear()

    changes = locked(folder, hub)

    assert hub.asked == []
    assert {change.kind for change in changes.values()} == {"unchanged"}


def test_a_comment_does_not_make_a_lock_stale(folder, hub):
    locked(folder, hub)
    edit(folder, "text", "card: t4", "card: t4   # the only one")

    assert stale(folder) == {}


def test_a_longer_life_changes_the_lock_without_asking_the_hub(folder, hub):
    locked(folder, hub)
    edit(folder, "text", "card: t4", "card: t4\nttl: 60")
    assert stale(folder) == {"text": "has changed in the catalog since it was locked"}
    hub.asked.clear()

    changes = locked(folder, hub)

    assert hub.asked == []
    assert changes["text"].kind == "changed"
    assert stale(folder) == {}


def test_a_changed_context_changes_the_command_line(folder, hub):
    locked(folder, hub)
    edit(folder, "text", "context: 4096", "context: 8192")

    assert locked(folder, hub)["text"].details[0] == "argv 4096 → 8192"


def test_only_a_changed_source_is_asked_of_the_hub_again(folder, hub):
    locked(folder, hub)
    hub.asked.clear()
    edit(folder, "text", "org/text", "org/other")

    changes = locked(folder, hub)

    assert hub.asked == [("org/other", None)]
    assert "repo org/text → org/other" in changes["text"].details


def test_a_model_that_begins_to_see_stays_on_its_commit(folder, hub):
    locked(folder, hub)
    hub.asked.clear()
    hub.head = NEXT
    edit(folder, "text", "[text]", "[text, image]")

    locked(folder, hub)

    assert hub.asked == [("org/text", COMMIT)]


def test_a_new_commit_is_taken_only_with_upgrade(folder, hub):
    locked(folder, hub)
    hub.head = NEXT
    assert {change.kind for change in locked(folder, hub).values()} == {"unchanged"}

    changes = locked(folder, hub, upgrade=["text"])

    assert changes["text"].kind == "upgraded"
    assert changes["text"].details == (
        f"revision {COMMIT[:12]} → {NEXT[:12]}",
        "~ m-Q4_K_M.gguf: 100 → 100 bytes, aaaaaaaaaaaa → bbbbbbbbbbbb",
    )
    assert changes["vision"].kind == "unchanged"


def test_a_removed_model_leaves_the_lock(folder, hub):
    locked(folder, hub)
    (folder / "models" / "text.yaml").unlink()
    assert stale(folder) == {"text": "is in the lock, but no longer in the catalog"}

    assert locked(folder, hub)["text"].kind == "removed"
    assert stale(folder) == {}


def test_a_command_line_that_was_edited_by_hand_is_stale(folder, hub):
    locked(folder, hub)
    file = folder / "lock.json"
    file.write_text(file.read_text().replace('"4096"', '"9999"', 1))

    assert stale(folder)["text"].startswith("has another command line in the lock than its intent gives")


def test_a_missing_lock_is_stale_for_every_model(folder):
    assert stale(folder) == {"text": "is not in the lock", "vision": "is not in the lock"}


def test_what_needs_a_lock_is_refused_with_the_next_command(folder, hub):
    with pytest.raises(LockStale) as caught:
        lock.require_fresh(catalog.load(folder))
    assert caught.value.next_step == f"corral lock --catalog {folder}"

    locked(folder, hub)
    edit(folder, "text", "4096", "8192")
    with pytest.raises(LockStale, match="text has changed in the catalog"):
        lock.require_fresh(catalog.load(folder))


def test_what_does_not_touch_the_command_line_is_not_measured_again(folder, hub, engine):
    locked(folder, hub, engine)
    assert engine.asked == ["text", "vision"]
    engine.asked.clear()
    edit(folder, "text", "card: t4", "card: t4\nttl: 60")

    locked(folder, hub, engine)

    assert engine.asked == []
    assert stale(folder) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("4096", "8192"),
        ("card: t4", "card: t4\nparallel: 2"),
        ("card: t4", "card: t4\nargs: {cache-type-k: q8_0}"),
        ("card: t4", "card: t4\nvram: {declared_mib: 9, why: seen}"),
        ("org/text", "org/other"),
    ],
    ids=["context", "parallel", "cache type", "declared", "source"],
)
def test_what_changes_what_is_taken_is_measured_again(folder, hub, engine, old, new):
    locked(folder, hub, engine)
    engine.asked.clear()
    hub.head = NEXT
    edit(folder, "text", old, new)

    locked(folder, hub, engine)

    assert engine.asked == ["text"]
    assert stale(folder) == {}


def test_files_of_a_new_commit_are_measured_again(folder, hub, engine):
    locked(folder, hub, engine)
    engine.asked.clear()
    hub.head = NEXT

    locked(folder, hub, engine, upgrade=["text"])

    assert engine.asked == ["text"]


HARM = {
    "not there": (lambda entry: entry.pop("vram"), "has no measurement of its VRAM"),
    "of another command line": (lambda entry: entry["vram"].update(argv_sha256="0" * 64), "for another command line"),
    "by another engine": (lambda entry: entry["vram"].update(engine="b1"), "was measured by b1, and this corral has"),
    "by other rules": (lambda entry: entry["vram"].pop("rules_version"), "was measured by rules of version 0"),
    "declared by hand": (
        lambda entry: entry["vram"].update(declared={"mib": 5, "why": "felt right"}, gpu_total=5 << 20),
        "declares other VRAM in the lock than in the catalog",
    ),
    "with other figures that add up": (
        lambda entry: entry["vram"].update(gpu=entry["vram"]["gpu"] | {"weights": 2}, gpu_total=2),
        "were edited by hand",
    ),
    "with another total": (lambda entry: entry["vram"].update(gpu_total=2), "do not add up to their gpu_total of 2"),
    "half gone": (lambda entry: entry["vram"].pop("host"), "must have gpu and host, or say why"),
    "gone": (lambda entry: [entry["vram"].pop(side) for side in ("gpu", "host")], "must have gpu and host"),
}


@pytest.mark.parametrize("harm", HARM)
def test_rows_that_cannot_be_relied_on_are_stale_and_measured_again(folder, hub, engine, harm):
    locked(folder, hub, engine)
    document = json.loads((folder / "lock.json").read_text())
    HARM[harm][0](document["models"]["text"])
    (folder / "lock.json").write_text(json.dumps(document))
    engine.asked.clear()

    assert list(stale(folder)) == ["text"]
    assert HARM[harm][1] in stale(folder)["text"]
    with pytest.raises(LockStale, match="text "):
        lock.require_fresh(catalog.load(folder))

    locked(folder, hub, engine)
    assert engine.asked == ["text"]
    assert stale(folder) == {}


def test_a_row_that_is_not_known_is_refused(folder, hub):
    locked(folder, hub)
    file = folder / "lock.json"
    file.write_text(file.read_text().replace('"gpu_total"', '"gpu_totally"', 1))

    with pytest.raises(Refused, match=r"is not a lock that this corral can read: .* at \.models\.text\.vram"):
        lock.read(file)


def test_all_models_that_cannot_be_measured_are_named_at_once(folder, hub):
    class Broken(Engine):
        def measure(self, model_id, model, resolved, argv, known=()):
            raise EngineCannotMeasure(f"no {model_id}", next_step="declare it")

    with pytest.raises(Refused, match="text: no text\n  vision: no vision") as caught:
        locked(folder, hub, Broken(folder))
    assert caught.value.next_step == "declare it"
    assert not (folder / "lock.json").exists()


def test_one_model_that_cannot_be_resolved_leaves_the_lock_as_it_was(folder, hub):
    locked(folder, hub)
    before = (folder / "lock.json").read_bytes()
    edit(folder, "text", "4096", "8192")
    edit(folder, "vision", "org/vision", "org/gone")

    def failing(model, directory, *, revision=None):
        raise Refused("There is no repository org/gone.", next_step="Correct source.repo")

    with pytest.raises(Refused, match="vision: There is no repository org/gone"):
        locked(folder, failing)
    assert (folder / "lock.json").read_bytes() == before


def test_a_hub_that_is_away_is_not_the_catalogs_fault(folder):
    def away(model, directory, *, revision=None):
        raise HubUnavailable("the hub does not answer")

    with pytest.raises(CannotRun):
        locked(folder, away)


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2, "models": {}}', '{"version": 1, "models": {"a": {}}}'])
def test_a_lock_that_is_not_understood_is_refused(tmp_path, text):
    (tmp_path / "lock.json").write_text(text)

    with pytest.raises(Refused, match="is not a lock that this corral can read"):
        lock.read(tmp_path / "lock.json")


@pytest.mark.parametrize("harm", ["gone", "longer"])
def test_a_model_on_disk_that_has_changed_is_stale_and_hashed_again(folder, harm):
    file = folder / "m.gguf"
    file.write_bytes(b"first")
    edit(folder, "text", "{repo: org/text, quant: Q4_K_M}", "{path: m.gguf}")
    (folder / "models" / "vision.yaml").unlink()
    locked(folder, resolve)
    assert stale(folder) == {}
    assert locked(folder, resolve)["text"].kind == "unchanged"

    if harm == "gone":
        file.unlink()
        assert "there is no file" in stale(folder)["text"]
        return
    file.write_bytes(b"second")
    assert "has 6 bytes, not 5" in stale(folder)["text"]
    assert locked(folder, resolve)["text"].kind == "changed"
    assert stale(folder) == {}


def test_a_lock_behind_a_link_is_written_where_it_is(folder, hub, tmp_path_factory):
    kept = tmp_path_factory.mktemp("elsewhere") / "lock.json"
    kept.write_text('{"version": 1, "models": {}}')
    (folder / "lock.json").symlink_to(kept)

    locked(folder, hub)

    assert (folder / "lock.json").is_symlink()
    assert "text" in lock.read(kept).models


def test_a_size_in_quotes_is_not_a_size(folder, hub):
    locked(folder, hub)
    file = folder / "lock.json"
    file.write_text(file.read_text().replace('"size": 100', '"size": "100"', 1))

    with pytest.raises(Refused, match=r"is not a lock that this corral can read: .* at \.models\.text\.files"):
        lock.read(file)


# -- the images of the cluster --------------------------------------------------------------------------------

SWAP, FETCH = "ghcr.io/org/swap:v1", "python:3.13-slim"
ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64


class Registry:
    """Knows one digest, and remembers what it was asked."""

    def __init__(self, digest=ONE):
        self.digest, self.asked = digest, []

    def __call__(self, image):
        self.asked.append(image.tagged)
        return self.digest


@pytest.fixture
def images(folder):
    """The catalog with images, of which fetch names its digest itself."""

    def write(swap=SWAP, fetch=f"{FETCH}@{TWO}"):
        (folder / "images.yaml").write_text(f"llama-swap: {swap}\nfetch: {fetch}\n")

    write()
    return write


def edit_lock(folder, change):
    document = json.loads((folder / "lock.json").read_text())
    change(document)
    (folder / "lock.json").write_text(json.dumps(document))


def test_a_lock_without_images_is_as_it_was(folder, hub):
    locked(folder, hub)

    assert list(json.loads((folder / "lock.json").read_text())) == ["version", "models"]


def test_a_tag_is_locked_at_its_digest_and_a_digest_as_it_is(folder, hub, images):
    registry = Registry()

    changes = locked(folder, hub, image_digest=registry)

    document = json.loads((folder / "lock.json").read_text())
    assert list(document) == ["version", "images", "models"]
    assert document["images"] == {"fetch": f"{FETCH}@{TWO}", "llama-swap": f"{SWAP}@{ONE}"}
    assert registry.asked == [SWAP]
    assert (changes["llama-swap"].kind, changes["llama-swap"].details) == ("added", (f"{SWAP}@{ONE}",))
    assert changes["llama-swap"].subject == "image llama-swap"
    assert stale(folder) == {}


def test_the_agent_passes_over_the_images(folder, hub, images):
    locked(folder, hub, image_digest=Registry())

    assert list(read_lock(folder / "lock.json").models) == ["text", "vision"]


def test_an_unchanged_image_is_not_asked_again_until_it_is_upgraded(folder, hub, images):
    locked(folder, hub, image_digest=Registry())
    registry = Registry(TWO)

    assert locked(folder, hub, image_digest=registry)["llama-swap"].kind == "unchanged"
    assert registry.asked == []

    changes = locked(folder, hub, image_digest=registry, upgrade_images=["llama-swap", "fetch"])
    assert registry.asked == [SWAP]
    assert changes["llama-swap"].kind == "upgraded"
    assert changes["llama-swap"].details == (f"{SWAP}@{ONE} → {SWAP}@{TWO}",)


def test_another_tag_is_stale_and_asked(folder, hub, images):
    locked(folder, hub, image_digest=Registry())
    images(swap="ghcr.io/org/swap:v2")

    assert stale(folder) == {"llama-swap": f"is ghcr.io/org/swap:v2 in the catalog and {SWAP} in the lock"}
    assert locked(folder, hub, image_digest=Registry(TWO))["llama-swap"].kind == "changed"
    assert stale(folder) == {}


@pytest.mark.parametrize(
    ("pinned", "why"),
    [
        (None, "is not in the lock"),
        (SWAP, f"has no digest in the lock: {SWAP}"),
        ("ghcr.io/org/swap:latest", "is not an image in the lock: ghcr.io/org/swap:latest has the tag latest"),
        (f"{SWAP}@sha256:1", "is not an image in the lock"),
        (f"{FETCH}@{ONE}", f"is {SWAP} in the catalog and {FETCH} in the lock"),
    ],
)
def test_an_image_that_is_not_the_catalogs_at_a_digest_is_stale(folder, hub, images, pinned, why):
    locked(folder, hub, image_digest=Registry())
    edit_lock(folder, lambda document: document["images"].update({"llama-swap": pinned}))
    if pinned is None:
        edit_lock(folder, lambda document: document["images"].pop("llama-swap"))

    assert why in stale(folder)["llama-swap"]
    with pytest.raises(LockStale, match="  image llama-swap "):
        lock.require_fresh(catalog.load(folder))
    locked(folder, hub, image_digest=Registry())
    assert stale(folder) == {}


def test_another_digest_in_the_catalog_is_stale(folder, hub, images):
    locked(folder, hub, image_digest=Registry())
    images(fetch=f"{FETCH}@{ONE}")

    assert stale(folder) == {"fetch": f"has another digest in the catalog than in the lock: {ONE}, not {TWO}"}


def test_images_without_an_intent_leave_the_lock(folder, hub, images):
    locked(folder, hub, image_digest=Registry())
    (folder / "images.yaml").unlink()

    assert stale(folder) == dict.fromkeys(("llama-swap", "fetch"), "is in the lock, but no longer in the catalog")
    changes = locked(folder, hub)
    assert (changes["fetch"].kind, changes["fetch"].about) == ("removed", "image")
    assert "images" not in json.loads((folder / "lock.json").read_text())


def test_an_image_without_an_answer_leaves_the_lock_as_it_was(folder, hub, images):
    def away(image):
        raise CannotRun(f"The registry of {image.name} does not answer.", next_step="Check the network")

    with pytest.raises(CannotRun, match=r"  image llama-swap: The registry of ghcr\.io/org/swap does not answer"):
        locked(folder, hub, image_digest=away)

    assert not (folder / "lock.json").exists()

"""The lock: deterministic bytes, staleness by name, and only what changed is asked of hub and engine again."""

import hashlib
import json

import pytest

from corral.agent.lock_file import LockedFile, read_lock
from corral.catalog import catalog, ledger
from corral.catalog.ledger import Ledger, Measurement, argv_sha256
from corral.engine.embedded import ENGINE
from corral.errors import CannotRun, EngineCannotPredict, HubUnavailable, LockStale, Refused
from corral.hub.resolve import resolve
from corral.hub.resolved import Resolved
from corral.lock import lock
from corral.lock.predict import EnginePredictor, Predicted
from corral.lock.relock import relock, with_measurements
from corral.vram.prediction import Bytes, Prediction
from corral.vram.rules import RULES_VERSION

COMMIT, NEXT = "a" * 40, "b" * 40
TEXT = "source: {repo: org/text, quant: Q4_K_M}\ncard: t4\ncontext: 4096\nmodalities: [text]\n"
VISION = "source: {repo: org/vision, quant: Q4_K_M}\ncard: t4\ncontext: 4096\nmodalities: [text, image]\n"


class Hub:
    """Answers as the hub would, and remembers what it was asked: a resolver without a network."""

    def __init__(self):
        self.asked = []
        self.head = COMMIT

    def __call__(self, model, catalog_dir, *, revision=None):
        self.asked.append((model.source.repo, revision))
        commit = revision or self.head
        files = [LockedFile(path="m-Q4_K_M.gguf", role="model", size=100, sha256=commit[0] * 64)]
        if model.vision:
            files.append(LockedFile(path="mmproj-F16.gguf", role="projector", size=10, sha256="c" * 64))
        return Resolved(repo=model.source.repo, revision=commit, licence="mit", files=tuple(files))


class Engine(EnginePredictor):
    """Answers for files that are made of nothing: 1 byte of weights, and remembers for which model it was asked."""

    def __init__(self, folder):
        super().__init__(catalog.load(folder))
        self.asked = []

    def predict(self, model_id, model, resolved, argv, known=()):
        self.asked.append(model_id)
        parts = Bytes(weights=1, context=0, compute=0, projector=0)
        found = Prediction(engine=ENGINE, rules_version=RULES_VERSION, headers=(), gpu=parts, host=parts, gpu_bytes=1)
        return Predicted(found)


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
    """Lock *folder* as `corral lock` does, write it, and return the changes by name."""
    wanted = catalog.load(folder)
    try:
        present = lock.read(wanted.lock_file)
    except LockStale:
        present, options = None, {"pins": lock.pins(wanted.lock_file)} | options
    result = relock(wanted, present, hub, engine or Engine(folder), **options)
    lock.write(wanted.lock_file, result.lock)
    return {change.name: change for change in result.changes}


def stale(folder):
    """Reasons by name."""
    return {item.name: item.reason for item in lock.stale(catalog.load(folder))}


def codes(folder):
    return {item.name: item.code for item in lock.stale(catalog.load(folder))}


def edit_lock(folder, change):
    """Change the document and seal it anew, as no accident does."""
    document = json.loads((folder / "lock.json").read_text())
    change(document)
    text = json.dumps(document | {"seal": ""}, indent=2) + "\n"
    (folder / "lock.json").write_text(text.replace('"seal": ""', f'"seal": "{lock.seal_of(text)}"', 1))


def test_a_lock_has_the_documented_shape(folder, hub):
    locked(folder, hub)

    document = json.loads((folder / "lock.json").read_text())
    assert list(document) == ["version", "seal", "sources", "images", "cards", "models"]
    assert (document["version"], document["images"]) == (2, {})
    assert document["cards"] == {
        "t4": {"vram_mib": 15360, "reserve_mib": 512, "compute_capability": None, "node": None, "tenants": {}}
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
    plain = {"source": source, "card": "t4", "context": 4096, "modalities": ["text"], "parallel": 1}
    plain |= {"reasoning": "auto", "ttl": 600, "group": "main", "aliases": [], "args": {}, "image_max_tokens": None}
    assert models["text"]["intent"] == plain | {"cache_ram_mib": 1024, "vram": None, "smoke": None}
    assert models["vision"]["intent"]["image_max_tokens"] == 1024


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


def test_a_fresh_lock_asks_the_hub_nothing(folder, hub):
    locked(folder, hub)
    hub.asked.clear()

    changes = locked(folder, hub)

    assert hub.asked == []
    assert {change.kind for change in changes.values()} == {"unchanged"}


@pytest.mark.parametrize("edited", ["models/text.yaml", "cards/t4.yaml"])
def test_a_comment_makes_a_lock_stale_and_relocking_asks_nothing(folder, hub, engine, edited):
    locked(folder, hub, engine)
    (folder / edited).write_text((folder / edited).read_text() + "# the only one\n")
    assert stale(folder) == {edited: "has changed since it was locked"}
    assert codes(folder) == {edited: "changed"}
    hub.asked.clear()
    engine.asked.clear()

    changes = locked(folder, hub, engine)

    assert (hub.asked, engine.asked) == ([], [])
    assert {change.kind for change in changes.values()} == {"unchanged"}
    assert stale(folder) == {}


def test_a_longer_life_changes_the_lock_without_asking_the_hub(folder, hub):
    locked(folder, hub)
    edit(folder, "text", "card: t4", "card: t4\nttl: 60")
    hub.asked.clear()

    changes = locked(folder, hub)

    assert hub.asked == []
    assert (changes["text"].kind, changes["text"].details) == ("changed", ("ttl 600 → 60",))
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
    assert codes(folder) == {"models/text.yaml": "removed"}

    assert locked(folder, hub)["text"].kind == "removed"
    assert stale(folder) == {}


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


# -- a lock that cannot be trusted ---------------------------------------------------------------------------------

ACCIDENTS = {
    "an edited word": lambda text: text.replace('"4096"', '"9999"', 1),
    "an edited figure": lambda text: text.replace('"gpu_bytes": 1', '"gpu_bytes": 2', 1),
    "another layout": lambda text: json.dumps(json.loads(text)),
    "another seal": lambda text: text.replace('"seal": "', '"seal": "0', 1),
    "no seal": lambda text: "\n".join(line for line in text.splitlines() if '"seal"' not in line),
    "a line merged in": lambda text: text.replace('  "models": {', '  "images": {},\n  "models": {', 1),
    "line ends of another system": lambda text: text.replace("\n", "\r\n"),
    "version 1": lambda text: text.replace('"version": 2', '"version": 1'),
}


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_of_a_lock_that_was_not_written_by_corral_only_the_commits_are_reused(folder, hub, engine, accident):
    locked(folder, hub, engine)
    whole = (folder / "lock.json").read_bytes()
    (folder / "lock.json").write_bytes(ACCIDENTS[accident](whole.decode()).encode())
    assert codes(folder) == {"lock.json": "version" if accident == "version 1" else "seal"}
    with pytest.raises(LockStale, match=r"lock\.json "):
        lock.require_fresh(catalog.load(folder))
    with pytest.raises(LockStale, match=r"lock\.json "):
        lock.read(folder / "lock.json")
    hub.asked.clear()
    engine.asked.clear()
    hub.head = NEXT

    locked(folder, hub, engine)

    assert hub.asked == [("org/text", COMMIT), ("org/vision", COMMIT)]
    assert engine.asked == ["text", "vision"]
    assert (folder / "lock.json").read_bytes() == whole
    assert stale(folder) == {}


@pytest.mark.parametrize(
    ("harm", "asked"),
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
def test_a_commit_of_such_a_lock_is_reused_where_it_is_the_models(folder, hub, harm, asked):
    locked(folder, hub)
    document = json.loads((folder / "lock.json").read_text())
    harm(document["models"]["text"])
    (folder / "lock.json").write_text(json.dumps(document))
    hub.asked.clear()

    locked(folder, hub)

    assert hub.asked == [("org/text", asked), ("org/vision", COMMIT)]


def test_a_commit_that_the_intent_names_wins_over_one_in_a_lock_that_cannot_be_trusted(folder, hub):
    locked(folder, hub)
    (folder / "lock.json").write_text((folder / "lock.json").read_text().replace('"version": 2', '"version": 1'))
    edit(folder, "text", "quant: Q4_K_M", f"quant: Q4_K_M, revision: {NEXT}")
    hub.asked.clear()

    locked(folder, hub)

    assert hub.asked[0] == ("org/text", None)


def test_upgrade_moves_on_from_a_lock_that_cannot_be_trusted_too(folder, hub):
    locked(folder, hub)
    (folder / "lock.json").write_text((folder / "lock.json").read_text() + " ")
    hub.asked.clear()

    locked(folder, hub, upgrade=["text"])

    assert hub.asked == [("org/text", None), ("org/vision", COMMIT)]


# -- what another corral would lock otherwise ----------------------------------------------------------------------

OTHERWISE = {
    "other defaults": (lambda entry: entry["intent"].update(ttl=5), "derived", "was locked by another corral"),
    "another argv": (lambda entry: entry["argv"].append("--swa-full"), "derived", "was locked by another corral"),
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
    engine.asked.clear()

    assert codes(folder) == {"text": code}
    assert stale(folder)["text"].startswith(why)
    with pytest.raises(LockStale, match="  text was "):
        lock.require_fresh(catalog.load(folder))

    locked(folder, hub, engine)
    assert engine.asked == ([] if other == "other defaults" else ["text"])
    assert (folder / "lock.json").read_bytes() == whole


# -- predictions and measurements ----------------------------------------------------------------------------------


def test_what_does_not_touch_the_command_line_is_not_predicted_again(folder, hub, engine):
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
        ("org/text", "org/other"),
    ],
    ids=["context", "parallel", "cache type", "source"],
)
def test_what_changes_what_is_taken_is_predicted_again(folder, hub, engine, old, new):
    locked(folder, hub, engine)
    engine.asked.clear()
    hub.head = NEXT
    edit(folder, "text", old, new)

    locked(folder, hub, engine)

    assert engine.asked == ["text"]
    assert stale(folder) == {}


def test_files_of_a_new_commit_are_predicted_again(folder, hub, engine):
    locked(folder, hub, engine)
    engine.asked.clear()
    hub.head = NEXT

    locked(folder, hub, engine, upgrade=["text"])

    assert engine.asked == ["text"]


def test_a_declaration_is_taken_over_without_asking_and_must_cover_the_prediction(folder, hub, engine):
    locked(folder, hub, engine)
    engine.asked.clear()
    edit(folder, "text", "card: t4", "card: t4\nvram: {declared_mib: 9, why: seen}")

    assert locked(folder, hub, engine)["text"].details == (
        "vram.declared_mib none → 9",
        "vram.why none → seen",
        "seat 1 MiB → 9 MiB declared",
    )
    assert engine.asked == []

    def heavy(document):
        parts = document["models"]["text"]["predicted"]
        parts["gpu"]["weights"] = parts["gpu_bytes"] = 10 << 20
        document["models"]["text"]["intent"]["vram"] = None

    edit_lock(folder, heavy)
    with pytest.raises(Refused, match=r"declares 9 MiB, and the engine predicts 10 MiB .*models/text\.yaml:3"):
        locked(folder, hub, engine)


def test_an_unpredicted_model_whose_declaration_goes_is_asked_again(folder, hub, engine):
    edit(folder, "text", "card: t4", "card: t4\nvram: {declared_mib: 9, why: seen}")
    locked(folder, hub, engine)
    nothing = {"gpu": None, "host": None, "gpu_bytes": None, "unmeasured": "it crashed"}
    edit_lock(folder, lambda document: document["models"]["text"]["predicted"].update(nothing))
    engine.asked.clear()
    assert locked(folder, hub, engine)["text"].kind == "unchanged"
    assert engine.asked == []

    edit(folder, "text", "vram: {declared_mib: 9, why: seen}", "")
    locked(folder, hub, engine)

    assert engine.asked == ["text"]


def measurement(argv, **more):
    facts = {"model": "text", "argv_sha256": argv_sha256(argv), "engine": "b11549", "device": "Tesla T4"}
    facts |= {"source": "nvidia-smi", "date": "2026-11-21T00:00:00Z", "gpu_bytes": 5 << 20, "host_bytes": None}
    return Measurement(**facts | {"predicted_gpu_bytes": 1, "predicted_host_bytes": None} | more)


def test_the_largest_measurement_on_a_card_for_exactly_this_argv_is_locked_offline(folder, hub, engine):
    locked(folder, hub, engine)
    argv = lock.read(folder / "lock.json").models["text"].argv
    records = (
        measurement(argv),
        measurement(argv, gpu_bytes=7 << 20, device="Tesla P4"),
        measurement(argv, gpu_bytes=9 << 20, device="Intel(R) CPU"),
        measurement([*argv, "--swa-full"], gpu_bytes=11 << 20),
        measurement(argv, gpu_bytes=13 << 20, model="vision"),
    )
    ledger.write(folder, Ledger(measurements=records))
    assert codes(folder) == {"measured.json": "added"}
    hub.asked.clear()
    engine.asked.clear()

    changes = locked(folder, hub, engine)

    assert (hub.asked, engine.asked) == ([], [])
    facts = {"gpu_bytes": 7 << 20, "device": "Tesla P4", "source": "nvidia-smi", "engine": "b11549"}
    entries = json.loads((folder / "lock.json").read_text())["models"]
    assert entries["text"]["measured"] == facts | {"date": "2026-11-21T00:00:00Z"}
    assert entries["vision"]["measured"] is None
    assert changes["text"].details == ("seat 1 MiB → 7 MiB measured",)
    ledger.path_of(folder).unlink()
    assert codes(folder) == {"measured.json": "removed"}


def test_a_measurement_is_taken_over_without_anything_else(folder, hub):
    """As `corral measure` does: not even a file on disk is hashed for it."""
    locked(folder, hub)
    present = lock.read(folder / "lock.json")
    ledger.write(folder, Ledger(measurements=(measurement(present.models["text"].argv),)))

    lock.write(folder / "lock.json", with_measurements(present, catalog.load(folder)))

    assert stale(folder) == {}
    quick = (folder / "lock.json").read_bytes()
    locked(folder, hub)
    assert (folder / "lock.json").read_bytes() == quick


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda entry: entry["predicted"].update(gpu_totally=1), r"Extra inputs .* at \.models\.text\.predicted"),
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

    with pytest.raises(Refused, match=rf"is not a lock that this corral can read: .*{why}"):
        lock.read(folder / "lock.json")


def test_all_models_that_cannot_be_predicted_are_named_at_once(folder, hub):
    class Broken(Engine):
        def predict(self, model_id, model, resolved, argv, known=()):
            raise EngineCannotPredict(f"no {model_id}", next_step="declare it")

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


@pytest.mark.parametrize("text", ["", "[]", '{"version": 3, "models": {}}', '{"models": {}}', "<<<<<<< HEAD"])
def test_a_lock_that_is_not_understood_is_refused(tmp_path, text):
    (tmp_path / "lock.json").write_text(text)

    with pytest.raises(Refused, match="is not a lock that this corral can read"):
        lock.read(tmp_path / "lock.json")
    with pytest.raises(Refused, match="is not a lock that this corral can read") as caught:
        lock.pins(tmp_path / "lock.json")
    assert "Restore it from version control" in caught.value.next_step


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
    kept.write_text('{"version": 1, "models": {}}\n')
    (folder / "lock.json").symlink_to(kept)

    locked(folder, hub)

    assert (folder / "lock.json").is_symlink()
    assert "text" in lock.read(kept).models


def test_a_size_in_quotes_is_not_a_size(folder, hub):
    locked(folder, hub)
    edit_lock(folder, lambda document: document["models"]["text"]["files"][0].update(size="100"))

    with pytest.raises(Refused, match=r"is not a lock that this corral can read: .* at \.models\.text\.files"):
        lock.read(folder / "lock.json")


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


def test_a_tag_is_locked_at_its_digest_and_a_digest_as_it_is(folder, hub, images):
    registry = Registry()

    changes = locked(folder, hub, image_digest=registry)

    document = json.loads((folder / "lock.json").read_text())
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

    assert codes(folder) == {"images.yaml": "changed"}
    assert locked(folder, hub, image_digest=Registry(TWO))["llama-swap"].kind == "changed"
    assert stale(folder) == {}


def test_another_digest_in_the_catalog_is_taken_as_it_is(folder, hub, images):
    locked(folder, hub, image_digest=Registry())
    images(fetch=f"{FETCH}@{ONE}")
    registry = Registry()

    assert locked(folder, hub, image_digest=registry)["fetch"].details == (f"{FETCH}@{TWO} → {FETCH}@{ONE}",)
    assert registry.asked == []


def test_an_image_of_a_lock_that_cannot_be_trusted_is_asked_again(folder, hub, images):
    locked(folder, hub, image_digest=Registry())
    (folder / "lock.json").write_text((folder / "lock.json").read_text() + " ")
    registry = Registry(TWO)

    locked(folder, hub, image_digest=registry)

    assert registry.asked == [SWAP]


def test_images_without_an_intent_leave_the_lock(folder, hub, images):
    locked(folder, hub, image_digest=Registry())
    (folder / "images.yaml").unlink()

    assert codes(folder) == {"images.yaml": "removed"}
    changes = locked(folder, hub)
    assert (changes["fetch"].kind, changes["fetch"].about) == ("removed", "image")
    assert json.loads((folder / "lock.json").read_text())["images"] == {}


def test_an_image_without_an_answer_leaves_the_lock_as_it_was(folder, hub, images):
    def away(image):
        raise CannotRun(f"The registry of {image.name} does not answer.", next_step="Check the network")

    with pytest.raises(CannotRun, match=r"  image llama-swap: The registry of ghcr\.io/org/swap does not answer"):
        locked(folder, hub, image_digest=away)

    assert not (folder / "lock.json").exists()

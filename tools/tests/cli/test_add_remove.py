"""`corral add` and `corral remove` with a real hub client, a hub on loopback and the real predictions."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from corral.catalog import catalog as catalogs
from corral.cli.main import main
from corral.demo.hub import Hub, RepoContent
from corral.demo.tour import write_tiny_repositories
from corral.files import only_writer
from corral.golden import record
from corral.lock import lock as locks
from tests.support import gguf_models
from tests.support.adapters import write_answering
from tests.support.engine_process import wait_for
from tests.support.gguf_bytes import TEXT, gguf, pair, text
from tests.support.kernel import require_namespaces
from tests.support.terminal import on_a_terminal
from tests.support.tiny_catalog import write_tiny_catalog

CORRAL = [sys.executable, "-m", "corral.cli.main"]
LARGE = ("qwen3-0.6b-q8", "qwen3-4b-q4km")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny_catalog(tmp_path_factory.mktemp("tiny") / "catalog")


@pytest.fixture
def catalog(tmp_path, tiny):
    """The demo's tiny models, locked; 1,170 MiB of the card are free."""
    return shutil.copytree(tiny, tmp_path / "catalog")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Models of the tests by a short name: tiny ones, and published ones with a hole in place of their weights."""
    folder = tmp_path_factory.mktemp("hub")
    repositories = write_tiny_repositories(folder)
    found = {file.stem: file for one in repositories.values() for file in one.values()}
    for name in LARGE:
        found[name] = folder / f"{name}.gguf"
        gguf_models.write(name, found[name])
    found["red"] = folder / "red.gguf"
    write_answering(found["red"], "red")
    found["unknown"] = folder / "unknown.gguf"
    found["unknown"].write_bytes(gguf(pair("general.architecture", TEXT, text("wondermodel"))) + bytes(64))
    found["garbage"] = folder / "garbage.gguf"
    found["garbage"].write_bytes(b"no GGUF at all" * 100)
    found["sound"] = folder / "mmproj-sound.gguf"
    found["sound"].write_bytes(gguf(pair("general.architecture", TEXT, text("clip"))) + bytes(64))
    return found


@pytest.fixture
def hub(files, monkeypatch):
    def content(token=None, **named):
        """Files by their names in the repository; of the large ones no test has the bytes, and so no hash."""
        found = {f"{name}.gguf": files[short] for name, short in named.items()}
        digests = {f"{name}.gguf": f"{LARGE.index(short):064x}" for name, short in named.items() if short in LARGE}
        return RepoContent(found, digests=digests, token=token)

    text, think = "tiny-text-F16", "tiny-think-F16"
    repositories = {
        "org/Tiny_Text-GGUF": content(**{"tiny-F16": text}),
        "org/vision-GGUF": content(**{"v-F16": "tiny-vision-F16", "mmproj-F32": "mmproj-tiny-vision-F32"}),
        "org/sound-GGUF": content(**{"s-F16": text, "mmproj-F16": "sound"}),
        "org/two-projectors-GGUF": content(**{"t-F16": text, "mmproj-a-F16": "sound", "mmproj-b-F16": "sound"}),
        "org/several-GGUF": content(**{"m-Q8_0": LARGE[0], "m-Q4_K_M": LARGE[1], "other": think}),
        "org/larger-GGUF": content(**{"l-Q4_K_M": LARGE[1]}),
        "org/both-too-large-GGUF": content(**{"l-Q8_0": LARGE[0], "l-Q4_K_M": LARGE[1]}),
        "org/large-GGUF": content(**{"large-Q8_0": LARGE[0]}),
        "org/half-GGUF": content(**{"half-Q4_0-00001-of-00002": text}),
        "org/adapter-GGUF": content(red="red"),
        "org/both-GGUF": content(**{"red": "red", "both-F16": text}),
        "org/garbage-GGUF": content(**{"g-F16": "garbage"}),
        "org/unknown-GGUF": content(**{"u-F16": "unknown"}),
        "org/gated-GGUF": content(token="hf_right", **{"g-F16": text}),
    }
    with Hub(repositories) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        yield running


def content_of(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def run(catalog):
    def run(*words):
        return main([*words, "--catalog", str(catalog)])

    return run


@pytest.fixture
def refused(run, catalog, capsys):
    """Runs a command that fails and leaves the catalog as it was; its message."""

    def refused(*words, code=2):
        before = content_of(catalog)
        capsys.readouterr()
        assert run(*words) == code
        assert content_of(catalog) == before
        return capsys.readouterr().err

    return refused


# -- add -----------------------------------------------------------------------------------------------------


def test_the_id_comes_from_the_repository_and_the_rest_from_headers_and_catalog(run, catalog, hub, capsys):
    assert run("add", "org/vision-GGUF", "--yes") == 0

    shown = capsys.readouterr()
    assert (catalog / "models" / "vision.yaml").read_text() == (
        "source: {repo: org/vision-GGUF, quant: F16}\n"
        "card: laptop\n"
        "context: 4096\n"
        "modalities: [text, image]\n"
        "group: main\n"
    )
    assert shown.out.startswith("+ models/vision.yaml\n    source: {repo: org/vision-GGUF, quant: F16}\n")
    assert "\n~ lock.json\nvision: added\n  + v-F16.gguf (model, 946,272 bytes)\n" in shown.out
    assert "card laptop: free 1,170 → 991 of 4,096 MiB" in shown.out
    assert "corral up --detach" in shown.err
    assert "corral apply" in shown.err
    assert list(locks.stale(catalogs.load(catalog))) == []
    capsys.readouterr()
    assert run("lock", "--check") == 0
    assert run("seat") == 0


def test_a_projector_of_sound_alone_makes_no_model_of_images(run, catalog, hub):
    assert run("add", "org/sound-GGUF", "--yes") == 0

    assert "modalities: [text]\n" in (catalog / "models" / "sound.yaml").read_text()
    entry = locks.read(catalog / "lock.json").models["sound"]
    assert [file.path for file in entry.files] == ["s-F16.gguf"]


def test_a_second_projector_must_be_named(refused, run, catalog, hub):
    shown = refused("add", "org/two-projectors-GGUF", "--yes")
    assert "several projectors are equally good: mmproj-a-F16.gguf, mmproj-b-F16.gguf" in shown
    assert "--mmproj none" in shown

    assert run("add", "org/two-projectors-GGUF", "--yes", "--mmproj", "none") == 0
    assert "mmproj: none}" in (catalog / "models" / "two-projectors.yaml").read_text()


def test_the_group_is_that_of_the_cards_other_models_where_they_have_one(run, catalog, hub):
    for name in ("tiny-think", "tiny-vision"):
        (catalog / "models" / f"{name}.yaml").unlink()
    assert run("lock") == 0

    assert run("add", "org/large-GGUF", "--yes", "--context", "1024") == 0

    assert "group: text\n" in (catalog / "models" / "large.yaml").read_text()


def test_options_take_the_place_of_what_was_found(run, catalog, hub):
    words = ("--name", "mine", "--group", "own", "--context", "512", "--card", "laptop")
    assert run("add", "org/several-GGUF:other.gguf", *words, "--yes") == 0

    written = (catalog / "models" / "mine.yaml").read_text()
    assert written.splitlines() == [
        "source: {repo: org/several-GGUF, file: other.gguf}",
        "card: laptop",
        "context: 512",
        "modalities: [text]",
        "group: own",
    ]


def test_an_empty_catalog_gets_its_first_model(run, catalog, hub):
    for file in (*catalog.glob("models/*"), catalog / "lock.json"):
        file.unlink()

    assert run("add", "org/vision-GGUF", "--yes") == 0
    assert list(locks.read(catalog / "lock.json").models) == ["vision"]


def test_several_models_are_listed_with_their_sizes_and_which_fit(refused, hub, catalog):
    shown = refused("add", "org/several-GGUF", "--yes")

    rows = [line.split() for line in shown.splitlines() if line.startswith("  ") and "→" not in line]
    assert [row[0] for row in rows if "about" in row] == ["other.gguf", "Q8_0", "Q4_K_M"]
    assert "  Q4_K_M  2.5 GB  does not fit: about" in shown
    assert shown.count("  fits: about") == 2
    assert f"corral add org/several-GGUF:Q8_0 --catalog {catalog}" in shown


def test_the_seat_of_the_list_is_the_one_that_the_lock_would_have(refused, run, hub, capsys):
    shown = refused("add", "org/several-GGUF", "--yes", "--context", "1024")
    (about,) = [line for line in shown.splitlines() if line.startswith("  Q8_0")]
    assert run("add", "org/several-GGUF:Q8_0", "--json", "--context", "1024") == 0

    document = json.loads(capsys.readouterr().out)
    (seat,) = [one for one in document["changes"][0]["details"] if one.startswith("seat ")]
    number = int(about.partition("about ")[2].split()[0].replace(",", ""))
    # The list adds the difference of the files to the prediction of the smallest one; 1,024 tokens of a model of 28
    # layers take 112 MiB more than those of the tiny one.
    assert abs(number - int(seat.split()[1].replace(",", ""))) <= 400


def test_a_quant_that_is_not_there_is_refused_with_those_that_are(refused, hub):
    shown = refused("add", "org/several-GGUF:Q2_K", "--yes")
    assert "org/several-GGUF has no Q2_K; these are its models" in shown


def test_what_does_not_fit_with_any_context_is_refused_with_the_way_to_a_smaller_one(refused, hub):
    shown = refused("add", "org/several-GGUF:Q4_K_M", "--yes")
    assert "does not fit on card laptop" in shown
    assert "the card is short of " in shown
    assert "Choose a smaller one: corral add org/several-GGUF" in shown


def test_a_context_that_fits_is_a_command_that_works(refused, run, hub, catalog):
    shown = refused("add", "org/large-GGUF", "--yes", "--context", "40960")
    step = shown.splitlines()[-1].split("corral ", 1)[1]
    assert main([*step.split(), "--yes"]) == 0


def test_where_no_model_of_a_repository_fits_the_next_step_is_what_is_on_the_card(refused, run, hub, catalog):
    shown = refused("add", "org/larger-GGUF", "--yes")
    step = f"No model of org/larger-GGUF fits there; make room, by what is on the card: corral seat --catalog {catalog}"
    assert shown.endswith(f"  → {step}\n")
    assert run("seat") == 0


def test_of_several_cards_one_is_named_and_the_next_step_is_the_cluster_alone(refused, run, catalog, hub, capsys):
    (catalog / "cards" / "other.yaml").write_text((catalog / "cards" / "laptop.yaml").read_text())
    assert run("lock") == 0
    shown = refused("add", "org/vision-GGUF", "--yes")
    assert "A new model gets one card, and the catalog has 2: laptop, other." in shown
    assert "Name one: --card CARD; in its file cards: [A, B] may take the place of card afterwards" in shown

    assert run("add", "org/vision-GGUF", "--card", "other", "--yes") == 0
    shown = capsys.readouterr().err
    assert f"  → in the homelab: corral apply --catalog {catalog}\n" in shown
    assert "corral up" not in shown


@pytest.fixture
def crowded(run, catalog):
    """200 MiB are free beside the groups, and one of them keeps 1,150: a second model of it takes nothing more."""
    with (catalog / "models" / "tiny-text.yaml").open("a") as intent:
        intent.write("vram: {declared_mib: 1150, why: for a test}\n")
    assert run("lock") == 0


@pytest.mark.parametrize("repo", ["org/large-GGUF", "org/both-too-large-GGUF", "org/both-too-large-GGUF:Q4_K_M"])
def test_a_model_that_fits_in_another_group_alone_gets_that_as_a_command_that_works(
    crowded, refused, run, hub, catalog, repo
):
    shown = refused("add", repo, "--yes")
    step = shown.splitlines()[-1].split("corral ", 1)[1]
    assert "--group text" in step
    assert main([*step.split(), "--yes"]) == 0
    assert run("seat") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["org/gated-GGUF"], "org/gated-GGUF is gated, and no token was given."),
        (["org/gone-GGUF"], "There is no repository org/gone-GGUF"),
        (["org/half-GGUF"], "org/half-GGUF has no whole model as GGUF"),
        (["half"], "'half' is no repository of a hub: it must be like org/name."),
        (
            ["org/large-GGUF", "--context", "999999"],
            "Name 40960 or less: corral add org/large-GGUF --context 40960 --catalog ",
        ),
        (["org/large-GGUF", "--card", "h100"], "There is no card h100; there are: laptop."),
        (["org/large-GGUF", "--name", "Big One"], "'Big One' is no id of a model"),
        (["org/large-GGUF", "--group", "a b"], "'a b' is no name of a group"),
        (["org/large-GGUF", "--name", "tiny"], "tiny is an alias of tiny-text"),
        (["org/Tiny_Text-GGUF"], "There is a model tiny-text already"),
        (["org/large-GGUF", "--name", "tiny-text"], "remove that one first: corral remove --catalog "),
        (["org/adapter-GGUF"], "red.gguf of org/adapter-GGUF is a LoRA adapter, and no model."),
        (["org/adapter-GGUF"], "Name it under adapters: in the file of the model that it is for"),
        (["org/both-GGUF"], "  F16  655.7 kB  fits: about "),
        (["org/both-GGUF"], " kB  no model\n  → Name one, for example: corral add org/both-GGUF:F16 "),
        (["https://hub.test/org/large-GGUF/tree/main"], "→ corral add org/large-GGUF --catalog "),
        (["https://hub.test/org/large-GGUF:Q8_0"], "→ corral add org/large-GGUF:Q8_0 --catalog "),
        (["half"], "→ corral add --catalog "),
        (["org/garbage-GGUF"], "  → Check that REPO names a GGUF file of llama.cpp, and that it is whole; else choose"),
        (["org/large-GGUF", "--mmproj", "p.gguf"], "Correct --mmproj"),
        (
            ["org/large-GGUF", "--mmproj", "nofile"],
            "--mmproj: must name a .gguf file, not 'nofile'.\n  → Name one, or none: --mmproj FILE.gguf, --mmproj none",
        ),
        (["org/large-GGUF", "--group", "g" * 64], "with a letter or digit at both ends, 63 at most, and not blobs"),
        (["org/large-GGUF", "--name", "n" * 300], "Name another: --name NAME"),
        (
            ["org/vision-GGUF", "--context", "1"],
            "image_max_tokens is 1: an image would not fit into context 1.\n  → Give other options: corral add --help",
        ),
        (["org/sound-GGUF", "--mmproj", "mmproj-F16.gguf"], "source.mmproj names mmproj-F16.gguf, but modalities has"),
    ],
)
def test_a_refusal_leaves_the_catalog_as_it_was(refused, hub, words, message):
    assert message in refused("add", *words, "--yes")


def test_what_the_engine_does_not_know_is_refused_with_the_way_by_hand(refused, hub):
    shown = refused("add", "org/unknown-GGUF", "--yes")
    assert "unknown model architecture: 'wondermodel'" in shown
    assert "Choose another model; or write the file yourself (docs/models.md) and state there what it takes" in shown


def test_a_hub_that_is_away_leaves_the_catalog_as_it_was(refused, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    shown = refused("add", "org/large-GGUF", "--yes", code=3)
    assert "is unreachable" in shown
    assert "then: corral add org/large-GGUF" in shown


@pytest.mark.parametrize("step", ["corral.lock.lock.write_atomically", "corral.cli.relocking.write_atomically"])
def test_a_disk_that_is_full_leaves_the_catalog_as_it_was(refused, hub, monkeypatch, step):
    def full(path, *_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(step, full)
    assert "cannot be written" in refused("add", "org/large-GGUF", "--yes", "--context", "1024")


def test_an_interrupt_between_the_two_files_leaves_the_catalog_as_it_was(refused, hub, monkeypatch):
    def interrupted(path, lock):
        raise KeyboardInterrupt

    monkeypatch.setattr(locks, "write", interrupted)
    refused("add", "org/large-GGUF", "--yes", "--context", "1024", code=130)


def test_a_catalog_that_changes_meanwhile_is_not_written_over(run, catalog, hub, monkeypatch, capsys):
    """The edit of another process is made where the question would be answered."""
    file = catalog / "models" / "tiny-text.yaml"

    def edited(_question):
        file.write_text(file.read_text() + "# an edit\n")
        return True

    monkeypatch.setattr("corral.cli.relocking.agreed", edited)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert run("add", "org/vision-GGUF") == 2
    assert "has changed since it was read: nothing was written" in capsys.readouterr().err
    assert not (catalog / "models" / "vision.yaml").exists()


def corral(*words):
    """The command as a process of its own; what it printed to stderr."""
    return subprocess.Popen([*CORRAL, *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


@pytest.mark.parametrize("other", [("remove", "tiny-think", "--yes"), ("lock",)])
def test_of_two_that_write_at_the_same_instant_one_writes_and_the_other_is_refused(catalog, hub, other):
    """Both are ready to write when the first of them may."""
    file = catalog / "models" / "tiny-think.yaml"
    file.write_text(file.read_text() + "# edited: both have a lock to write\n")
    asked, whole = ("--catalog", str(catalog)), locks.read(catalog / "lock.json")
    with only_writer(catalog):
        both = [corral("add", "org/vision-GGUF", "--yes", *asked), corral(*other, *asked)]
        for one in both:
            wait_for(lambda one=one: waits_for_a_lock(one.pid), what="the wait")
    printed = [one.communicate()[1] for one in both]
    assert sorted(one.returncode for one in both) == [0, 2], printed
    refused = next(text for one, text in zip(both, printed, strict=True) if one.returncode)
    assert "has changed since it was read: nothing was written.\n  → corral " in refused
    now = catalogs.load(catalog)
    assert list(locks.stale(now)) == []
    assert locks.read(catalog / "lock.json") != whole


def waits_for_a_lock(pid):
    """Whether a thread of the process is blocked in flock: in the kernel's list its lock stands with an arrow."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any(" -> FLOCK " in line and f" {pid} " in line for line in lines)


@pytest.mark.parametrize("words", [("add", "org/vision-GGUF"), ("remove", "tiny-vision")])
def test_without_a_terminal_an_answer_is_needed_before_anything_is_asked_of_the_hub(refused, hub, words):
    shown = refused(*words)
    assert "There is no terminal for the question, and --yes was not given." in shown
    assert f"corral {' '.join(words)} --catalog" in shown
    assert hub.log == []


@pytest.mark.parametrize(("answer", "code"), [("yes", 0), ("y", 1), ("", 1)])
def test_on_a_terminal_only_yes_adds_it(catalog, hub, answer, code):
    before = content_of(catalog)
    ended, shown = on_a_terminal([*CORRAL, "add", "org/vision-GGUF", "--catalog", str(catalog)], f"{answer}\n")

    assert ended == code, shown
    assert "Add vision? Only yes adds it." in shown
    assert (content_of(catalog) == before) == (code == 1)
    assert ("Nothing was changed." in shown) == (code == 1)


@pytest.mark.parametrize("words", [("add", "org/vision-GGUF"), ("remove", "tiny-vision")])
def test_json_alone_changes_nothing_and_has_what_would(run, catalog, hub, capsys, words):
    before = content_of(catalog)
    capsys.readouterr()
    assert run(*words, "--json") == 0

    document = json.loads(capsys.readouterr().out)
    assert content_of(catalog) == before
    assert (document["written"], document["next"]) == (False, [])
    assert list(document["cards"]["laptop"]) == ["free_mib_before", "free_mib", "vram_mib"]
    assert [one["change"] for one in document["changes"]] == ["added" if words[0] == "add" else "removed"]


# -- remove --------------------------------------------------------------------------------------------------


def test_a_model_is_removed_with_its_part_of_the_lock_offline(run, catalog, monkeypatch, capsys):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    text = (catalog / "models" / "tiny-vision.yaml").read_text()

    assert run("remove", "tiny-vision", "--yes") == 0

    shown = capsys.readouterr()
    assert shown.out.startswith("- models/tiny-vision.yaml\n")
    assert all(f"    {line}\n" in shown.out for line in text.splitlines())
    assert "tiny-vision: removed\n" in shown.out
    assert "card laptop: free 1,170 → 1,328 of 4,096 MiB" in shown.out
    assert "corral prune" in shown.err
    assert "corral up --detach" in shown.err
    assert "corral apply" in shown.err
    assert sorted(locks.read(catalog / "lock.json").models) == ["tiny-text", "tiny-think"]
    assert run("lock", "--check") == 0


@pytest.fixture
def answered(catalog):
    """Golden answers of two models."""
    answer = record.Answer(
        question_sha256="0" * 64,
        prompt_tokens=1,
        text="OK",
        fields=None,
        tokens=[record.Place(token="OK", top={"OK": 0})],
    )
    serving = record.Serving(engine="b1", machine="cpu", argv_sha256=None, files=None)
    one = record.ModelRecord(
        date="2026-01-01T00:00:00Z", serving=serving, tokens_per_second=None, answers={"hello": answer}
    )
    record.write(catalog, record.Golden(models={"tiny-text": one, "tiny-vision": one}))


def test_the_golden_answers_of_a_removed_model_go_with_it(run, catalog, answered, capsys):
    assert run("remove", "tiny-vision", "--yes") == 0
    assert "~ golden.json: without the answers of tiny-vision\n" in capsys.readouterr().out
    assert list(record.read(catalog).models) == ["tiny-text"]


def test_add_and_remove_are_each_others_reverse(run, catalog, hub):
    before = content_of(catalog)
    assert run("add", "org/vision-GGUF", "--yes") == 0
    assert content_of(catalog) != before
    assert run("remove", "vision", "--yes") == 0
    assert content_of(catalog) == before


def test_a_model_that_clients_golden_questions_or_a_fallback_name_stays(refused, run, catalog):
    with (catalog / "models" / "tiny-text.yaml").open("a") as intent:
        intent.write("fallback: tiny-vision\n")
    (catalog / "clients.yaml").write_text("clients:\n  photos:\n    models: [tiny-vision]\n    requests: 1\n")
    question = "{messages: [{role: user, content: Hi}], models: [tiny-vision]}"
    (catalog / "golden.yaml").write_text(f"questions:\n  hello: {question}\n")
    assert run("lock") == 0

    shown = refused("remove", "tiny-vision", "--yes")

    assert f"{catalog / 'clients.yaml'}:3: the client photos may use it" in shown
    assert f"{catalog / 'golden.yaml'}: the question hello is for it" in shown
    assert re.search(r"tiny-text\.yaml:[0-9]+: it is the fallback of tiny-text", shown)
    assert "Take it out there, then: corral remove tiny-vision" in shown


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt-5", "It has: tiny-text, tiny-think, tiny-vision."),
        ("tiny", "tiny is an alias of tiny-text.\n  → corral remove tiny-text --catalog "),
    ],
)
def test_what_is_no_id_of_a_model_is_refused(refused, name, message):
    assert message in refused("remove", name, "--yes")


def test_the_last_model_stays(refused, run, catalog):
    for name in ("tiny-text", "tiny-think"):
        assert run("remove", name, "--yes") == 0
    shown = refused("remove", "tiny-vision", "--yes")
    assert "is the only model of" in shown
    assert re.search(r"corral add (ORG/NAME-GGUF )?--catalog ", shown)


def test_a_lock_that_cannot_be_written_brings_the_file_and_its_answers_back(refused, answered, monkeypatch):
    def full(path, lock):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(locks, "write", full)
    assert "cannot be written" in refused("remove", "tiny-vision", "--yes")


# -- a file system that is, or becomes, read-only ------------------------------------------------------------

EDITS = {"add": ("org/vision-GGUF",), "remove": ("tiny-vision",)}


@pytest.mark.parametrize("command", EDITS)
def test_on_a_read_only_file_system_nothing_is_changed_and_one_error_says_why(catalog, hub, command):
    before = content_of(catalog)
    require_namespaces("-rm")
    mounted = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@" --catalog "$0"'
    words = ["unshare", "-rm", "sh", "-c", mounted, catalog, *CORRAL, command, *EDITS[command], "--yes"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    file = catalog / "models" / f"{'vision' if command == 'add' else 'tiny-vision'}.yaml"
    assert f"corral {command}: {file} cannot be written: Read-only file system.\n  → Check who owns" in done.stderr
    assert content_of(catalog) == before


@pytest.mark.parametrize("command", EDITS)
def test_where_the_file_cannot_be_brought_back_the_error_has_what_is_left_and_the_way_out(
    run, catalog, hub, monkeypatch, capsys, command
):
    """Stands in for a disk that becomes read-only after the model's file: a mount at that instant is no real part."""
    error = OSError(30, os.strerror(30))

    def read_only(*_, **__):
        raise error

    def lock_fails(*_):
        patched.setattr("corral.cli.relocking.write_atomically", read_only)
        patched.setattr(Path, "unlink", read_only)
        raise error

    file = catalog / "models" / f"{'vision' if command == 'add' else 'tiny-vision'}.yaml"
    with monkeypatch.context() as patched:
        patched.setattr(locks, "write", lock_fails)
        assert run(command, *EDITS[command], "--yes") == 2
    shown = capsys.readouterr().err

    assert f"{catalog} cannot be written: Read-only file system.\n{file} is " in shown
    assert "lock.json is as it was, and the file cannot be brought back to what it was: Read-only file system." in shown
    way_out = f"rm {file}" if command == "add" else f"git -C {catalog} restore models/tiny-vision.yaml"
    assert shown.endswith(f"  → Make {file.parent} writable, then: {way_out}\n")
    assert file.exists() == (command == "add")

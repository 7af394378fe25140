"""The documents' links, linked tests and commands exist."""

from __future__ import annotations

import pkgutil
import re
import shlex

import pytest

from corral import paths
from corral.cli.main import COMMANDS, build_parser
from corral.cluster import diagnosis
from corral.terraform import remedies
from tests.support import cluster_faults
from tests.support.cluster_faults import RECORDED
from tests.support.runbook import HEADINGS as RUNBOOK_HEADINGS
from tests.support.runbook import Runbook

ROOT = paths.REPOSITORY
PLACES = ("docs", "post-mortems", "terraform", "ansible")
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(file for folder in PLACES for file in ROOT.glob(f"{folder}/**/*.md"))],
)
POST_MORTEMS = sorted(ROOT.glob("post-mortems/*.md"))
RUNBOOKS = sorted(ROOT.glob("docs/runbooks/*.md"))

LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
HEADINGS = (
    "Summary",
    "Impact",
    "Timeline",
    "Root cause",
    "Detection",
    "Resolution",
    "What corral does about it",
    "What we could not prove",
)


def ids(files):
    return [str(file.relative_to(ROOT)) for file in files]


def prose(document):
    """The text without its blocks of code."""
    return re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)


def links(document):
    """Text, file and anchor of every relative link."""
    for found in LINK.finditer(prose(document)):
        target, _, anchor = found["target"].partition("#")
        if not re.match(r"[a-z]+:", target):
            yield found["text"], (document.parent / target).resolve() if target else document, anchor


def anchors(document):
    """GitHub's anchors of the headings."""
    headings = re.findall(r"^#+ +(.+)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids(DOCUMENTS))
def test_relative_links_and_their_anchors_lead_somewhere(document):
    for text, target, anchor in links(document):
        assert target.exists(), f"[{text}] leads to {target}"
        if anchor:
            assert anchor in anchors(target), f"[{text}] leads to #{anchor}, which {target.name} does not have"


SENTENCE_END = re.compile(r"[a-z0-9)`\"*\]%][.?!][)\"*\]]* (?=[A-Z`*\[])")


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids(DOCUMENTS))
def test_a_line_of_prose_has_one_sentence(document):
    """Tables may have several in a cell; the number of a list's item ends no sentence."""
    for line in prose(document).splitlines():
        if not line.startswith(("|", "#", "![")):
            text = re.sub(r"`[^`]*`", "`code`", re.sub(r"^ *\d+\. ", "", line))
            assert not SENTENCE_END.search(text), f"write one sentence per line: {line}"


def test_there_are_links_and_names_to_check():
    assert sum(len(list(links(document))) for document in DOCUMENTS) > 40
    assert sum(len(PYTHON_NAME.findall(prose(document))) for document in DOCUMENTS) > 20


def test_the_accuracy_table_is_the_benchmarks():
    heading = "| model | context | engine, MiB |"
    tables = []
    for name in ("docs/architecture/vram.md", "docs/benchmarks/vram.md"):
        rest = (ROOT / name).read_text().partition(heading)[2]
        tables.append(rest.partition("\n\n")[0].splitlines())
    assert len(tables[0]) > 10
    assert tables[0] == tables[1]


def linked_tests(document):
    """Name and file of every test that is linked: the name is the link's text."""
    for text, target, _ in links(document):
        if target.name.startswith("test_") or target.name.endswith(".tftest.hcl"):
            yield text.strip("`"), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids(DOCUMENTS))
def test_a_test_that_is_linked_exists_by_that_name(document):
    for name, file in linked_tests(document):
        definition = f'run "{name}"' if file.suffix == ".hcl" else f"def {name}("
        assert definition in file.read_text(), f"{file.relative_to(ROOT)} has no {name}"


PYTHON_NAME = re.compile(r"`(?:(?P<object>corral(?:\.\w+)+)|(?P<file>[\w./-]*\w\.py))`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids(DOCUMENTS))
def test_the_python_files_and_objects_that_are_named_exist(document):
    files = [f"/{file.relative_to(ROOT).as_posix()}" for file in (ROOT / "tools").rglob("*.py")]
    for found in PYTHON_NAME.finditer(prose(document)):
        if found["file"]:
            assert any(file.endswith(f"/{found['file']}") for file in files), f"there is no {found['file']}"
        else:
            pkgutil.resolve_name(found["object"])


def test_the_rules_of_the_modules_that_are_named_exist():
    tables = [
        rows.partition("\n\n")[0]
        for document in ROOT.glob("terraform/*/*/README.md")
        for rows in document.read_text().split("| rule | what it stops |")[1:]
    ]
    rules = {rule for table in tables for rule in re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)}

    assert len(rules) > 8
    assert rules <= remedies.RULES.keys()


@pytest.mark.parametrize("document", POST_MORTEMS, ids=ids(POST_MORTEMS))
def test_a_post_mortem_has_its_headings_in_order_and_ends_in_tests(document):
    found = re.findall(r"^## (.+)$", document.read_text(), re.MULTILINE)
    assert [heading for heading in found if heading in HEADINGS] == list(HEADINGS)
    assert re.match(r"\d{4}-\d\d-\d\d-[a-z0-9-]+\.md", document.name)
    assert document.read_text().startswith(f"# {document.name[:10]}: ")
    assert list(linked_tests(document)), "what nothing guards happens again"


def test_there_is_a_post_mortem_and_a_runbook():
    assert POST_MORTEMS
    assert RUNBOOKS


def corral_commands(document):
    """The corral commands of the console blocks."""
    blocks = re.findall(r"^```console\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in re.findall(r"^\$ corral (.+)$", block, re.MULTILINE)]


@pytest.mark.parametrize("document", RUNBOOKS, ids=ids(RUNBOOKS))
def test_every_command_of_a_runbook_is_one_that_corral_understands(document):
    for line in corral_commands(document):
        words = shlex.split(line, comments=True)
        assert words[0] in COMMANDS, line
        build_parser(only=words[0]).parse_args(words)  # exits when it does not


IN_THE_CLUSTER = ("download-job-failed", "pod-not-ready", "model-fails-to-load")


@pytest.mark.parametrize("name", IN_THE_CLUSTER)
def test_a_runbook_of_the_cluster_has_its_headings_in_order(name):
    found = re.findall(r"^## (.+)$", Runbook.read(name).file.read_text(), re.MULTILINE)
    assert found == list(RUNBOOK_HEADINGS)


@pytest.mark.parametrize("name", IN_THE_CLUSTER)
def test_a_runbook_of_the_cluster_quotes_messages_that_corral_prints(name):
    """Each stands in the findings of a recorded cluster, or in the source, with names and numbers between its parts."""
    recorded = [one for file in RECORDED.iterdir() for one in diagnosis.findings(cluster_faults.loaded(file))]
    messages = [f"{one.subject} {one.what}" for one in recorded]
    messages += [file.read_text() for file in sorted((ROOT / "tools/corral").glob("**/*.py"))]
    rows = Runbook.read(name).rows
    assert len(rows) > 5
    for row in rows:
        assert any(map(row.is_in, messages)), row.quoted


def test_there_are_commands_to_check():
    assert sum(len(corral_commands(document)) for document in RUNBOOKS) > 10

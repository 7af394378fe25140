"""`corral upgrade engine` in a clone of its own: real git, real wheels of other builds, real golden answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from corral import paths
from corral.demo.tour import tiny_hub
from corral.engine.embedded import LLAMA_CPP_BUILD, WHEEL_VERSION
from corral.upgrade.environment import Environment
from tests.support import clone as own_clone
from tests.support.registry import registry_on_loopback

OLDER, OLDER_WHEEL = "b11063", "2026.9.11063"
UNREADABLE = "b9294"
CATALOG = Path("terraform") / "catalog-demo"

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


class Clone:
    """A clone with one tiny model of text: what older builds do not state of projectors is refused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "corral"
        self.store = folder / "store"
        self.variables = {"CORRAL_STATE": str(folder / "state"), "OMP_WAIT_POLICY": "passive"}
        for name in own_clone.files():
            source = paths.REPOSITORY / name
            if source.is_file():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, self.folder / name, follow_symlinks=False)
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("config", "user.name", "A test")
        self.git("config", "user.email", "test@example.org")
        Environment(self.folder / ".venv").make(self.folder / "tools")
        for model in (self.folder / CATALOG / "models").glob("*.yaml"):
            if model.stem != "tiny-text":
                model.unlink()

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", "-C", self.folder, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def corral(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [self.folder / ".venv" / "bin" / "corral", *words]
        return subprocess.run(
            command,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **self.variables, **variables},
        )

    def upgrade(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.corral("upgrade", "engine", "--catalog", str(CATALOG), "--store", str(self.store), *words)

    def state(self) -> tuple[str, ...]:
        """What an upgrade that is refused must not change."""
        return tuple(
            self.git(*words)
            for words in (("rev-parse", "HEAD"), ("branch",), ("worktree", "list"), ("status", "--porcelain"))
        )


@pytest.fixture(scope="module")
def registry():
    """A registry with the engine's image of both builds."""
    with registry_on_loopback() as running:
        for build in (LLAMA_CPP_BUILD, OLDER):
            running.put("llama.cpp", f"server-cuda-{build}", build)
        yield running


@pytest.fixture
def clone(begun):
    """The clone; afterwards it is at its first commit again."""
    before = begun.git("rev-parse", "HEAD")
    yield begun
    begun.git("reset", "--quiet", "--hard", before)


@pytest.fixture(scope="module")
def begun(tmp_path_factory, registry):
    made = Clone(tmp_path_factory.mktemp("upgrade"))
    digest = f"sha256:{'2' * 64}"
    images = (
        f"llama-swap: ghcr.io/org/llama-swap:v260@{digest}",
        f"llama-server: {registry.address}/llama.cpp:server-cuda-{LLAMA_CPP_BUILD}",
        f"fetch: python:3.13-slim@{digest}",
    )
    (made.folder / CATALOG / "images.yaml").write_text("\n".join(images))
    with tiny_hub(made.folder.parent / "hub") as hub:
        for words in (("lock",), ("fetch", "--store", str(made.store))):
            done = made.corral(words[0], "--catalog", str(CATALOG), *words[1:], HF_ENDPOINT=hub.endpoint)
            assert done.returncode == 0, done.stderr
    made.git("add", "--all")
    made.git("commit", "--quiet", "--message", "Begin")
    return made


def test_an_upgrade_is_one_commit_that_moves_wheel_flags_image_and_predictions_and_goes_back(clone, registry):
    before = clone.git("rev-parse", "HEAD")
    done = clone.upgrade("--to", OLDER, "--json", "--yes")

    assert done.returncode == 0, done.stderr
    moved = json.loads(done.stdout)
    assert (moved["from"], moved["to"]) == (LLAMA_CPP_BUILD, OLDER)
    assert "moe-cache-mib" in moved["flags"]["gone"]
    found = [(one.get("model") or one["image"], one["change"]) for one in moved["lock"]]
    assert found == [("tiny-text", "changed"), ("llama-server", "changed")]
    assert "tiny-text\tfirst tokens\tpassed" in moved["golden"]
    assert clone.git("rev-list", "--count", f"{before}..HEAD") == "1"
    assert clone.git("branch", "--list", "engine-*") == ""
    assert clone.git("worktree", "list").count("\n") == 0

    changed = set(clone.git("diff", "--name-only", before).splitlines())
    tools = (
        "pyproject.toml",
        "requirements.lock",
        "corral/engine/embedded.py",
        "corral/catalog/llama_server_flags.json",
    )
    assert {f"tools/{name}" for name in tools} | {f"{CATALOG}/lock.json"} <= changed
    assert not {name for name in changed if "golden.json" in name}, "a record that was only made for this stays out"
    lock = json.loads((clone.folder / CATALOG / "lock.json").read_text())
    assert lock["engine"] == {"predicts": OLDER, "runs": OLDER, "known_by": "tag"}
    assert lock["images"]["llama-server"].startswith(f"{registry.address}/llama.cpp:server-cuda-{OLDER}@sha256:")
    assert f"{CATALOG}/images.yaml" in changed
    assert lock["models"]["tiny-text"]["predicted"]["engine"] == f"xllamacpp {OLDER_WHEEL} (llama.cpp {OLDER})"
    text = (clone.folder / "tools" / "requirements.lock").read_text()
    assert f"xllamacpp=={OLDER_WHEEL} " in text
    assert WHEEL_VERSION not in text

    clone.git("revert", "--no-edit", "HEAD")
    assert clone.git("diff", "--stat", before) == ""


def test_without_a_terminal_and_yes_the_commit_stays_on_its_branch(clone):
    before = clone.state()
    done = clone.upgrade("--to", OLDER, "--no-golden")

    assert done.returncode == 0, done.stderr
    assert f"engine: {LLAMA_CPP_BUILD} → {OLDER}" in done.stdout
    assert "flags gone: " in done.stdout
    assert f"merge --ff-only engine-{OLDER} && make setup" in done.stderr
    assert "warning: No golden answer was asked for" in done.stderr
    assert clone.git("rev-parse", f"engine-{OLDER}~1") == clone.git("rev-parse", "HEAD")

    again = clone.upgrade("--to", OLDER, "--no-golden")
    assert again.returncode == 2
    assert f"There is a branch engine-{OLDER} already" in again.stderr
    clone.git("branch", "-D", f"engine-{OLDER}")
    assert clone.state() == before


def test_a_build_that_corral_cannot_read_is_refused_and_nothing_is_left(clone):
    before = clone.state()
    done = clone.upgrade("--to", UNREADABLE, "--no-golden")

    assert done.returncode == 2
    assert f"This corral cannot read what {UNREADABLE} takes, and nothing was changed." in done.stderr
    assert "does not export llama.cpp's" in done.stderr
    assert clone.state() == before


def test_a_build_without_a_wheel_is_refused_with_the_nearest(clone):
    done = clone.upgrade("--to", "b11000")

    assert done.returncode == 2
    assert "There is no xllamacpp wheel with b11000; the nearest builds are b11063 and b10809." in done.stderr


def test_the_pinned_build_is_nothing_to_do(clone):
    done = clone.upgrade("--to", LLAMA_CPP_BUILD)

    assert (done.returncode, done.stdout) == (0, "")
    assert f"(llama.cpp {LLAMA_CPP_BUILD}) already" in done.stderr


def test_changes_that_are_not_committed_are_refused(clone):
    readme = clone.folder / "README.md"
    kept = readme.read_text()
    readme.write_text(f"{kept}\n")
    try:
        done = clone.upgrade("--to", OLDER, "--no-golden")
    finally:
        readme.write_text(kept)

    assert done.returncode == 2
    assert "changes that are not committed: README.md" in done.stderr


def test_where_the_models_are_not_in_the_store_the_way_out_is_named(clone, tmp_path):
    before = clone.state()
    done = clone.upgrade("--to", OLDER, "--store", str(tmp_path / "none"))

    assert done.returncode == 3
    assert "The models cannot be asked here" in done.stderr
    assert "corral upgrade engine --no-golden" in done.stderr
    assert clone.state() == before


def test_what_a_killed_upgrade_left_stops_no_other(clone):
    before = clone.state()
    cache = clone.folder.parent / "cache"
    left = cache / "corral" / "upgrade" / f"engine-{UNREADABLE}"
    clone.git("worktree", "add", "--quiet", "-b", f"engine-{UNREADABLE}", str(left))
    (left / "README.md").write_text("half of an upgrade")

    done = clone.corral(
        *("upgrade", "engine", "--to", UNREADABLE, "--no-golden", "--catalog", str(CATALOG)), XDG_CACHE_HOME=str(cache)
    )

    assert "This corral cannot read what" in done.stderr
    assert clone.state() == before

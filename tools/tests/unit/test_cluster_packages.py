"""The packages that run in the cluster: they must run where nothing is installed."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from corral import agent, door, exporter, paths
from corral.demo.hub import Hub, RepoContent
from tests.support.cluster.images import ENGINE_FILES
from tests.support.kernel import OTHER_UID, run_confined
from tests.support.locks import hub_model, write_lock

PACKAGES = pytest.mark.parametrize("package", [agent, door, exporter], ids=["agent", "door", "exporter"])
BYTES_OF_A_CONFIG_MAP = 400 << 10


def files(package):
    return sorted(Path(package.__file__).parent.glob("*.py"))


def imports(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.level, node.module or alias.name) for alias in node.names)


@PACKAGES
def test_every_import_is_the_standard_library_or_a_sibling(package):
    checked = 0
    for file in files(package):
        for level, module in imports(file):
            checked += 1
            if level:
                assert level == 1, f"{file.name} reaches out of the package: {module}"
                assert (file.parent / f"{module}.py").is_file(), f"{file.name}: no sibling {module}"
            else:
                name = module.split(".")[0]
                allowed = name in sys.stdlib_module_names or (package, name) == (exporter, "prometheus_client")
                assert allowed, f"{file.name} imports {module}"
    assert checked > 10


@PACKAGES
def test_the_package_is_flat_and_fits_a_config_map(package):
    folder = Path(package.__file__).parent
    assert [entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name != "__pycache__"] == []
    assert sum(file.stat().st_size for file in files(package)) < BYTES_OF_A_CONFIG_MAP


@pytest.fixture
def bare(tmp_path):
    """A folder with the agent and nothing else."""
    folder = tmp_path / "mounted" / "agent"
    folder.mkdir(parents=True)
    for file in files(agent):
        shutil.copy(file, folder)
    return folder.parent


def run_bare(bare, *words, **environment):
    return subprocess.run(
        [sys.executable, "-S", "-s", "-W", "error", "-m", "agent", *words],
        env={"PYTHONPATH": str(bare), "PATH": os.environ["PATH"], "HOME": str(bare), **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_fetches_and_verifies_with_nothing_but_its_files(bare, tmp_path):
    with Hub({"org/name": RepoContent({"a.gguf": b"weights" * 1000})}) as hub:
        lock = write_lock(tmp_path, one=hub_model(hub, "org/name", "a.gguf"))
        where = ("--lock", str(lock), "--store", str(tmp_path / "store"))
        fetched = run_bare(bare, "fetch", *where, HF_ENDPOINT=hub.endpoint)
        assert fetched.returncode == 0, fetched.stderr
        assert "1 model, 1 file: 7.0 kB moved" in fetched.stdout
    verified = run_bare(bare, "verify", *where)
    assert (verified.returncode, verified.stdout) == (0, "one/model.gguf: ok\n"), verified.stderr
    assert (tmp_path / "store" / "one" / "model.gguf").read_bytes() == b"weights" * 1000


def test_it_needs_no_rights_and_writes_nowhere_but_in_the_store():
    """As a container runs it: a user without rights, a root that is read-only, and the store."""
    with TemporaryDirectory() as made, Hub({"org/name": RepoContent({"a.gguf": b"weights" * 1000})}) as hub:
        folder = Path(made)  # pytest's own folders admit no other user
        folder.chmod(0o755)
        for name in ("mounted/agent", "python", "store"):
            (folder / name).mkdir(parents=True)
        for file in files(agent):
            shutil.copy(file, folder / "mounted" / "agent")
        lock = write_lock(folder, one=hub_model(hub, "org/name", "a.gguf"))
        store = folder / "store"
        if os.geteuid() == 0:
            os.chown(store, OTHER_UID, OTHER_UID)
        where = ["--lock", str(lock), "--store", str(store)]

        def confined(*words):
            return run_confined(folder, *words, PYTHONPATH=str(folder / "mounted"), HF_ENDPOINT=hub.endpoint)

        probe = "import os; print(os.geteuid(), [line for line in open('/proc/self/status') if 'CapEff' in line])"
        for place in (folder, Path("/")):
            probed = confined("-c", f"{probe}; open({str(place / 'x')!r}, 'w')")
            assert f"{OTHER_UID} ['CapEff:\\t0000000000000000\\n']\n" == probed.stdout, probed.stderr
            assert "Read-only file system" in probed.stderr

        for words in (["fetch", *where], ["verify", *where, "--repair"], ["warm", *where, "one"]):
            done = confined("-m", "agent", *words)
            assert done.returncode == 0, done.stderr
        assert (store / "one" / "model.gguf").read_bytes() == b"weights" * 1000
        shown = confined("-m", "agent", "store", "--store", str(store))
        assert shown.stdout.startswith("model\tone\t7.0 kB\t"), shown.stderr
        (store / "one").unlink()
        lock = write_lock(folder)
        done = confined("-m", "agent", "prune", *where, "--grace", "0", "--yes")
        assert done.returncode == 0, done.stderr
        assert "Removed 2 things, 7.0 kB." in done.stderr
        assert list((store / "blobs").iterdir()) == []


def test_an_error_is_a_sentence_a_next_step_and_its_exit_code(bare, tmp_path):
    done = run_bare(bare, "fetch", "--lock", str(tmp_path / "lock.json"), "--store", str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"agent fetch: There is no lock: {tmp_path}/lock.json does not exist.\n  → " in done.stderr


def test_the_engine_of_the_test_images_is_whole(tmp_path):
    for name in ENGINE_FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(paths.REPOSITORY / "tools" / name, tmp_path / name)
    start = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from corral.engine.llama_server import main"
    subprocess.run([sys.executable, "-I", "-S", "-c", start], check=True)

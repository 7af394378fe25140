"""Root works on a store of another user: everything in it belongs to that user, at every moment and at the end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from corral.demo.hub import RepoContent
from tests.support.faulty_hub import Quota
from tests.support.fetching import REPO, shop, weights
from tests.support.kernel import OTHER_UID, not_permitted
from tests.support.locks import hub_model, locked_file, write_lock

GROUP = 12345
OWNER = (OTHER_UID, GROUP)


@pytest.fixture(autouse=True)
def as_root():
    if os.geteuid() != 0:
        not_permitted("only root can write into another user's store")


@pytest.fixture
def one(tmp_path):
    """A shop whose empty store belongs to another user, on a way that only root can go."""
    with shop(tmp_path, size=300_000) as made:
        made.store.root.mkdir()
        os.chown(made.store.root, *OWNER)
        assert tmp_path.stat().st_mode & 0o077 == 0
        yield made


def owners(one):
    root = one.store.root
    found = {str(path.relative_to(root)): (path.lstat().st_uid, path.lstat().st_gid) for path in root.rglob("*")}
    assert len(found) > 5
    return found


def all_is_the_owners(one):
    return {path: owner for path, owner in owners(one).items() if owner != OWNER} == {}


def agent(one, *words, code=0, lock=None, **environment):
    store = ["--store", str(one.store.root)]
    locked = [] if words[0] == "store" else ["--lock", str(lock or one.lock)]
    return run([sys.executable, "-m", "corral.agent", *words, *store, *locked], one, code, environment)


def corral(one, *words, code=0):
    one.lock  # noqa: B018 - it is written
    program = str(Path(sys.executable).with_name("corral"))
    return run([program, *words, "--catalog", str(one.folder), "--store", str(one.store.root)], one, code, {})


def run(words, one, code, environment):
    environment = {**os.environ, "HF_ENDPOINT": one.hub.endpoint, **environment}
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def damage(one):
    blob = one.published.resolve()
    content = bytearray(blob.read_bytes())
    content[5] ^= 1
    blob.write_bytes(content)


def dead_lease(one):
    lease = one.store.leases / ("b" * 64)
    lease.write_text(json.dumps(["0000", "elsewhere", "elsewhere", 1, "1"]))
    os.utime(lease, (1, 1))
    os.chown(lease, *OWNER)


@pytest.mark.parametrize("how", [agent, corral], ids=["agent", "corral"])
def test_every_command_leaves_all_to_the_owner_of_the_store(one, how):
    how(one, "fetch")
    assert all_is_the_owners(one)
    damage(one)
    how(one, "verify", "--repair")
    assert all_is_the_owners(one)
    one.hub.update(REPO, RepoContent({"a.gguf": weights(200_000, 2)}))
    how(one, "fetch")
    assert all_is_the_owners(one)
    for record in one.store.records.iterdir():
        record.unlink()
    how(one, "verify")
    assert len(list(one.store.records.iterdir())) == 1
    how(one, "warm", "m")
    dead_lease(one)
    (one.store.leases / "clock").unlink(missing_ok=True)
    assert "lease of a process that is gone" in how(one, "prune").stdout
    assert (one.store.leases / "clock").exists()
    how(one, "prune", "--grace", "0", "--yes")
    assert all_is_the_owners(one)
    assert one.published.read_bytes() == weights(200_000, 2)


def test_the_list_of_the_store_leaves_all_to_its_owner(one):
    agent(one, "fetch")
    dead_lease(one)
    (one.store.leases / "clock").unlink(missing_ok=True)
    agent(one, "store")
    assert (one.store.leases / "clock").exists()
    assert all_is_the_owners(one)


def test_a_killed_fetch_leaves_a_part_and_a_lease_of_the_owner(one):
    assert one.kill_after(150_000) == -signal.SIGKILL
    found = owners(one)
    assert {path.split("/")[1] for path in found if path.count("/") == 2} == {"partials", "leases"}
    assert all_is_the_owners(one)


def test_what_root_writes_is_the_owners_while_it_is_written(one):
    quota = Quota(size=150_000)
    one.hub.faults = [quota]
    with one.start() as process:
        assert quota.used_up.wait(60)
        assert [path for path in owners(one) if path.endswith(".partial")]
        assert all_is_the_owners(one)
        quota.until.set()
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_new_store_belongs_to_the_owner_of_the_folder_that_it_is_made_in(one):
    one.store.root.rmdir()
    os.chown(one.folder, *OWNER)
    agent(one, "fetch")
    assert all_is_the_owners(one)
    assert one.store.root.stat().st_uid == OTHER_UID


def test_in_an_open_folder_of_root_the_owner_is_that_of_the_blobs(one):
    agent(one, "fetch")
    os.chown(one.store.root, 0, 0)
    one.store.root.chmod(0o777)
    damage(one)
    agent(one, "verify", "--repair")
    assert all_is_the_owners(one)


def test_a_store_of_root_stays_roots(one):
    os.chown(one.store.root, 0, 0)
    agent(one, "fetch")
    assert set(owners(one).values()) == {(0, 0)}


def test_a_file_and_a_token_that_only_root_can_read_are_read(one, tmp_path):
    token, mine = tmp_path / "token", tmp_path / "mine.gguf"
    token.write_text("hf_secret")
    mine.write_bytes(b"my own")
    for path in (token, mine):
        path.chmod(0o600)
    on_disk = {
        "repo": None,
        "revision": None,
        "licence": None,
        "argv": [],
        "files": [locked_file(str(mine), b"my own")],
    }
    one.hub.update("org/gated", RepoContent({"b.gguf": weights(50_000, 4)}, token="hf_secret"))
    gated = hub_model(one.hub, "org/gated", "b.gguf")
    lock = write_lock(tmp_path / "two", mine=on_disk, gated=gated)
    agent(one, "fetch", lock=lock, HF_TOKEN_PATH=str(token))
    agent(one, "verify", lock=lock)
    assert all_is_the_owners(one)
    assert (mine.stat().st_uid, mine.stat().st_mode & 0o777) == (0, 0o600)


@pytest.mark.parametrize("place", ["blobs", "sets", ".corral/verified", ".corral/leases", ".corral/partials"])
def test_what_an_earlier_repair_of_root_left_is_named_with_the_command_that_mends_it(one, place):
    agent(one, "fetch")
    one.hub.update(REPO, RepoContent({"a.gguf": weights(200_000, 2)}))
    os.chown(one.store.root / place, 0, 0)
    failed = agent(one, "fetch", code=3).stderr
    store = one.store.root
    assert f"{store / place} belongs to user 0, and the store {store} to {OTHER_UID}, who cannot change it." in failed
    command = failed.partition("→ As root: ")[2].strip()
    assert command == f"chown -R {OTHER_UID}:{GROUP} {store}"
    subprocess.run(command.split(), check=True)
    agent(one, "fetch")
    assert all_is_the_owners(one)


def test_prune_names_what_it_cannot_remove_and_the_command(one):
    agent(one, "fetch")
    old = one.published.resolve().parent
    one.hub.update(REPO, RepoContent({"a.gguf": weights(200_000, 2)}))
    agent(one, "fetch")
    os.chown(old, 0, 0)
    printed = agent(one, "prune", "--grace", "0", "--yes", code=1).stdout
    assert f"{old} belongs to user 0" in printed
    assert f"As root: chown -R {OTHER_UID}:{GROUP} {one.store.root}" in printed


def test_a_root_without_the_right_to_be_another_user_writes_nothing(one):
    words = ["setpriv", "--bounding-set", "-setuid,-setgid", "--inh-caps", "-setuid,-setgid"]
    if shutil.which("setpriv") is None:
        not_permitted("there is no setpriv")
    command = [*words, sys.executable, "-m", "corral.agent", "fetch", "--store", str(one.store.root)]
    done = run([*command, "--lock", str(one.lock)], one, 3, {})
    assert f"The store {one.store.root} belongs to {OTHER_UID}:{GROUP}, and this root may not make files" in done.stderr
    assert list(one.store.root.iterdir()) == []

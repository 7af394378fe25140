"""Files that change on the hub: what serves while they are fetched, and when they cannot be."""

from __future__ import annotations

import pytest

from corral.demo.hub import RepoContent
from tests.support.cluster.homelab import Watch, homelab
from tests.support.engine_process import chat
from tests.support.faulty_hub import Status

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    with homelab(cluster, tmp_path_factory.mktemp("revised"), "revised") as lab:
        lab.apply()
        yield lab


def test_a_new_revision_serves_the_old_set_until_the_flip_and_nothing_is_ever_missing(lab):
    link = lab.store / "tiny-text"
    before, old = link.readlink(), (link / "model.gguf").read_bytes()
    lab.hub.update("corral/tiny-text-GGUF", RepoContent({"tiny-text-F16.gguf": old + b"\0" * 4096}))
    lab.corral("lock", "--upgrade")

    with Watch((link / "model.gguf").exists) as watch:
        lab.apply()

    assert len(watch.answers) > 20
    assert all(watch.answers)
    assert link.readlink() != before
    assert (link.parent / before / "model.gguf").read_bytes() == old
    assert (link / "model.gguf").stat().st_size == len(old) + 4096
    lab.corral("smoke", "tiny-text")


def test_a_download_that_fails_leaves_the_old_set_serving_and_the_apply_says_why(lab, endpoint):
    link = lab.store / "tiny-text"
    before, serving, old = link.readlink(), lab.server_pod().metadata.uid, (link / "model.gguf").read_bytes()
    lab.hub.update("corral/tiny-text-GGUF", RepoContent({"tiny-text-F16.gguf": old + b"\0" * 4096}))
    lab.corral("lock", "--upgrade")
    lab.hub.faults.append(Status(status=404, times=None))

    refused = lab.corral("apply", "--yes", code=1)

    lab.hub.faults.clear()
    for word in (
        "job/download-models",
        "tiny-text",
        "does not exist (the hub answered 404)",
        "→ corral lock --upgrade",
    ):
        assert word in refused.stderr, refused.stderr
    assert link.readlink() == before
    assert lab.server_pod().metadata.uid == serving
    assert chat(endpoint, "Are you there?", model="tiny-text", api_key=lab.key())["message"]["content"] == "OK"
    lab.corral("apply", "--yes")
    assert link.readlink() != before

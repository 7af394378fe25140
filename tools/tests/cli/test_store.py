"""`corral store`: what it lists."""

import json
import signal

import pytest

from corral.cli.main import main
from corral.demo.hub import RepoContent
from tests.support import faulty_hub as faults
from tests.support.fetching import MIB, REPO, shop, weights


@pytest.fixture
def one(tmp_path):
    with shop(tmp_path, size=100_000) as made:
        made.fetch()
        yield made


def listed(one, capsys):
    assert main(["store", "--store", str(one.store.root)]) == 0
    out, err = capsys.readouterr()
    heading, *rows = (line.split("\t") for line in out.splitlines())
    assert heading == ["what", "path", "size", "since", "detail"]
    return [(what, path.partition("@")[0], size, detail) for what, path, size, _since, detail in rows], err


def test_a_model_is_listed_with_its_set_files_and_size(one, capsys):
    ((what, path, size, detail),), err = listed(one, capsys)
    assert (what, path, size, detail) == ("model", "m", "100.0 kB", f"{one.store.linked_set('m')}: model.gguf")
    assert err.startswith("1 blob, 100.0 kB; ")
    assert " free of " in err


def test_what_no_link_leads_to_is_listed_as_a_set_then_as_a_blob(one, capsys):
    one.hub.update(REPO, RepoContent({"a.gguf": weights(50_000, 2)}))
    old = one.store.linked_set("m")
    one.fetch()
    rows, err = listed(one, capsys)
    assert rows[1] == ("set", "sets/m", "100.0 kB", "no link leads to it: model.gguf")
    assert "2 blobs, 150.0 kB, 100.0 kB of it linked to by no model; " in err
    (one.store.root / "sets" / old / "model.gguf").unlink()
    (one.store.root / "sets" / old).rmdir()
    rows, _ = listed(one, capsys)
    assert rows[1][0] == "blob"
    assert rows[1][2:] == ("100.0 kB", "no set leads to it: a.gguf")


def test_a_file_that_is_missing_is_listed(one, capsys):
    one.published.resolve().unlink()
    rows, _ = listed(one, capsys)
    assert rows[0][3].endswith("model.gguf (missing)")


def test_a_download_that_was_stopped_is_listed_with_how_far_it_is(one, capsys):
    one.hub.update(REPO, RepoContent({"a.gguf": weights(8 * MIB, 3)}))
    one.hub.faults = [faults.Slow(rate=2e6)]
    assert one.kill_after(4 * MIB, by=signal.SIGTERM) == 3
    rows, _ = listed(one, capsys)
    (part,) = (row for row in rows if row[0] == "part")
    assert part[3].endswith(" % of 8.4 MB; a fetch resumes it")
    assert 10 < int(part[3].split(" %")[0]) < 100


def test_json_holds_sets_blobs_downloads_and_room(one, capsys):
    assert main(["store", "--json", "--store", str(one.store.root)]) == 0
    found = json.loads(capsys.readouterr().out)
    (only,) = found["sets"]
    assert (only["model"], only["linked_by"], only["size"], only["files"]) == ("m", ["m"], 100_000, ["model.gguf"])
    assert [blob["sha256"] for blob in found["blobs"]] == only["blobs"]
    assert found["downloads"] == found["leftovers"] == []
    assert 0 < found["free"] <= found["total"]


def test_where_there_is_no_store_it_is_refused(tmp_path, capsys):
    assert main(["store", "--store", str(tmp_path / "none")]) == 2
    assert f"There is no store at {tmp_path}/none." in capsys.readouterr().err
    assert not (tmp_path / "none").exists()

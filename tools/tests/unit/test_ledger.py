from __future__ import annotations

import hashlib
import json

import pytest

from corral.catalog import ledger
from corral.catalog.ledger import Ledger, Measurement, OnCard, argv_sha256
from corral.errors import Refused

ARGV, OTHER_ARGV = "a" * 64, "b" * 64


def measurement(**changes) -> Measurement:
    facts = {
        "model": "qwen3-8b",
        "argv_sha256": ARGV,
        "engine": "11549 (abcdef)",
        "device": "Tesla T4",
        "source": "nvidia-smi",
        "date": "2026-11-21T14:42:47Z",
        "gpu_bytes": 6996 << 20,
        "host_bytes": None,
        "predicted_gpu_bytes": 6997 << 20,
        "predicted_host_bytes": 350 << 20,
    }
    return Measurement(**facts | changes)


def on_cpu(**changes) -> Measurement:
    facts = {"device": "CPU", "source": "engine-report", "gpu_bytes": 0, "host_bytes": 7, "predicted_gpu_bytes": 0}
    return measurement(**facts | changes)


def test_without_a_file_nothing_was_measured(tmp_path):
    assert ledger.read(tmp_path) == Ledger()


def test_a_link_to_a_file_that_does_not_exist_is_refused(tmp_path):
    ledger.path_of(tmp_path).symlink_to("nowhere")

    with pytest.raises(Refused, match="it is a link to a file that does not exist"):
        ledger.read(tmp_path)


def test_what_is_written_is_read_and_its_bytes_do_not_depend_on_the_order(tmp_path):
    one, two = measurement(), on_cpu()
    ledger.write(tmp_path, Ledger(measurements=(two, one)))
    first = ledger.path_of(tmp_path).read_bytes()
    assert set(ledger.read(tmp_path).measurements) == {one, two}
    ledger.write(tmp_path, Ledger(measurements=(one, two)))
    assert ledger.path_of(tmp_path).read_bytes() == first


def test_a_newer_measurement_takes_the_place_of_the_same_kind_only():
    old = measurement()
    kept = [measurement(source="engine-report"), measurement(argv_sha256=OTHER_ARGV), measurement(device="A2")]
    book = Ledger(measurements=(old, *kept))
    new = measurement(date="2026-12-01T00:00:00Z", gpu_bytes=7000 << 20)
    assert set(book.with_newest(new).measurements) == {new, *kept}


def test_only_the_same_command_line_counts_and_of_those_the_largest():
    argv = ["llama-server", "-m", "<model>", "--port", "${PORT}"]
    mine = argv_sha256(argv)
    largest = measurement(argv_sha256=mine, device="A2", gpu_bytes=7100 << 20)
    older = measurement(argv_sha256=OTHER_ARGV, gpu_bytes=9000 << 20)
    other = measurement(argv_sha256=mine, model="other", gpu_bytes=9000 << 20)
    book = Ledger(measurements=(measurement(argv_sha256=mine), older, other, largest))
    kept = {key: getattr(largest, key) for key in ("gpu_bytes", "device", "source", "engine", "date")}
    assert book.on_card("qwen3-8b", argv) == OnCard(**kept)


def test_the_digest_of_a_command_line_is_that_of_its_compact_json():
    text = '["llama-server","--chat-template","<|ü|>","-c","1"]'
    expected = hashlib.sha256(text.encode()).hexdigest()
    assert argv_sha256(["llama-server", "--chat-template", "<|ü|>", "-c", "1"]) == expected


@pytest.mark.parametrize("device", ["CPU", "cpu", "Intel(R) Core CPU @ 3 GHz", "host-cpu"])
def test_a_measurement_without_a_card_never_decides_a_seat(device):
    one = measurement(argv_sha256=argv_sha256(["a"]), device=device, gpu_bytes=9000 << 20)
    assert not one.on_card
    assert Ledger(measurements=(one,)).on_card("qwen3-8b", ["a"]) is None


@pytest.mark.parametrize("device", ["Tesla T4", "Occult GPU", "McPu 5"])
def test_a_card_is_not_taken_for_a_processor_for_its_name(device):
    assert measurement(device=device).on_card


def test_what_is_compared_is_the_cards_memory_or_without_a_card_the_hosts():
    assert measurement().deviation == pytest.approx(-1 / 6997)
    assert on_cpu(host_bytes=110, predicted_host_bytes=100).deviation == pytest.approx(0.1)
    assert measurement(predicted_gpu_bytes=None).deviation is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("argv_sha256", "A" * 64),
        ("date", "yesterday"),
        ("date", "2026-11-21T14:42:47+01:00"),
        ("gpu_bytes", -1),
        ("gpu_bytes", "6996"),
        ("gpu_bytes", None),
        ("source", "guess"),
        ("device", ""),
        ("model", "No Id"),
        ("surprise", 1),
    ],
)
def test_a_ledger_with_anything_else_in_it_is_refused_with_its_place(tmp_path, key, value):
    entry = measurement().model_dump() | {key: value}
    ledger.path_of(tmp_path).write_text(json.dumps({"version": 1, "measurements": [entry]}))
    with pytest.raises(Refused, match=rf"measurements\.0\.{key}") as error:
        ledger.read(tmp_path)
    assert "corral measure" in error.value.next_step


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"version": 1}', '{"measurements": []}', '{"version": 2, "measurements": []}'],
)
def test_a_file_that_is_no_ledger_is_refused(tmp_path, text):
    ledger.path_of(tmp_path).write_text(text)
    with pytest.raises(Refused, match="not a ledger") as error:
        ledger.read(tmp_path)
    anew = f"rm {tmp_path}/measured.json && corral lock --catalog {tmp_path} && corral measure --catalog {tmp_path}"
    assert error.value.next_step.endswith(f": {anew}")


def test_a_ledger_that_is_not_utf8_is_refused_with_the_same_way_out(tmp_path):
    ledger.path_of(tmp_path).write_bytes(b'{"version": 1, "measurements": [\xe9]}')
    with pytest.raises(Refused, match=r"not a ledger .* it is not UTF-8") as error:
        ledger.read(tmp_path)
    assert f"rm {tmp_path}/measured.json && corral lock" in error.value.next_step


def test_a_merge_is_named_and_no_measurement_of_it_is_thrown_away(tmp_path):
    text = ledger.text_of(Ledger(measurements=(measurement(),)))
    ledger.path_of(tmp_path).write_text(f"<<<<<<< HEAD\n{text}=======\n{text}>>>>>>> other\n")
    with pytest.raises(Refused, match=r"measured\.json has the conflict markers of a merge") as error:
        ledger.read(tmp_path)
    assert error.value.next_step.startswith("Keep the entries of both sides")
    assert f"git -C {tmp_path} checkout --ours measured.json && corral lock" in error.value.next_step
    assert "rm " not in error.value.next_step


def test_a_ledger_without_measurements_is_one(tmp_path):
    ledger.path_of(tmp_path).write_text('{"version": 1, "measurements": []}')
    assert ledger.read(tmp_path) == Ledger()


def test_a_folder_that_cannot_be_written_leaves_the_old_ledger(tmp_path):
    with pytest.raises(Refused, match="cannot be written"):
        ledger.write(tmp_path / "missing", Ledger())


def test_a_link_stays_a_link(tmp_path):
    real = tmp_path / "elsewhere.json"
    real.write_text(ledger.text_of(Ledger()))
    folder = tmp_path / "catalog"
    folder.mkdir()
    ledger.path_of(folder).symlink_to(real)
    ledger.write(folder, Ledger(measurements=(measurement(),)))
    assert ledger.path_of(folder).is_symlink()
    assert ledger.read(folder).measurements == (measurement(),)

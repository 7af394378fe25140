"""What a command line takes, by the embedded engine over header-only models; the golden figures are in bytes."""

from __future__ import annotations

import json
import struct
import textwrap
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from corral.errors import CannotRun, EngineCannotPredict, ProgramMissing
from corral.vram import confined, oracle
from corral.vram.gguf_header import canonical, parse
from corral.vram.oracle import ask
from tests.support import gguf_models

GOLDEN = json.loads((Path(__file__).parents[1] / "fixtures" / "vram-golden-b11549.json").read_text())
MIB = 1 << 20
ARGV = ["llama-server", "-m", "${STORE}/m/model.gguf", "--alias", "m", "-c", "8192", "-np", "1", "-ngl", "99"]
ARGV += ["-fa", "on", "-fit", "off", "--offline", "--host", "127.0.0.1", "--port", "${PORT}"]


def with_projector(limit):
    return [*ARGV, "--mmproj", "${STORE}/m/mmproj.gguf", *([] if limit is None else ["--image-max-tokens", str(limit)])]


@cache
def counted(name):
    """What the model *name* takes with ``ARGV``."""
    (found,) = ask([gguf_models.header(name)], [ARGV])
    return found


@pytest.fixture
def child(monkeypatch):
    """Puts another program in the place of the child's."""
    return lambda program: monkeypatch.setattr(oracle, "_PROGRAM", textwrap.dedent(program))


@pytest.mark.parametrize("name", GOLDEN["mmproj"])
def test_every_golden_projector_is_equal_in_bytes(name):
    cells = GOLDEN["mmproj"][name]
    language = {"mmproj-qwen3vl-8b-f16": "qwen3vl-8b-q4km", "mmproj-qwen3vl-4b-f16": "qwen3vl-4b-q4km"}[name]
    headers = [gguf_models.header(language), gguf_models.header(name)]
    found = ask(headers, [with_projector(cell["image_max_tokens"]) for cell in cells])
    expected = [(cell["bytes"]["SIM0"], cell["bytes"]["CPU"]) for cell in cells]
    assert [(one.gpu.projector, one.host.projector) for one in found] == expected
    assert len(cells) == 4


def test_the_engine_is_the_golden_one():
    assert GOLDEN["engine"] == oracle.ENGINE


@pytest.mark.parametrize("name", ["llama-3.1-8b-q4km", "gpt-oss-20b-mxfp4", "qwen3.6-27b-q2k", "gemma3-4b-q4km"])
def test_the_token_list_has_no_influence(name):
    whole = gguf_models.header(name, tokenizer=True)
    assert ask([canonical(whole)], [ARGV]) == [counted(name)]


# From the model cards' configurations: weights on the card, and per token of context, in MiB.
@pytest.mark.parametrize(
    ("name", "weights", "context"),
    [
        ("llama-3.1-8b-q4km", 4403.5, 8192 * 32 * 2 * 8 * 128 * 2 / MIB),
        ("qwen2.5-7b-q4km", 4168.1, 8192 * 28 * 2 * 4 * 128 * 2 / MIB),
        ("gpt-oss-20b-mxfp4", 10949.4, (8192 + 768) * 12 * 2 * 8 * 64 * 2 / MIB),
        ("deepseek-v2-lite-q4km", 9774.7, 8192 * 27 * (512 + 64) * 2 / MIB),
        ("qwen3.6-27b-q2k", 9807.1, 8192 * 16 * 2 * 4 * 256 * 2 / MIB + 48 * (48 * 128 * 128 + 3 * 10240) * 4 / MIB),
    ],
)
def test_models_of_many_kinds_take_what_their_shapes_say(name, weights, context):
    found = counted(name)
    assert found.gpu.weights / MIB == pytest.approx(weights, abs=0.05)
    assert found.gpu.context / MIB == context


def test_an_encoder_computes_its_whole_batch_at_once():
    argvs = [[*ARGV, "-ub", ubatch, "--embedding"] for ubatch in ("512", "2048")]
    small, large = ask([gguf_models.header("nomic-embed-1.5-f16")], argvs)
    assert small.gpu.context == large.gpu.context == 0
    assert large.gpu.compute > 3 * small.gpu.compute


def test_a_split_model_takes_what_the_whole_one_takes(tmp_path):
    shards = []
    for path in gguf_models.write_shards("qwen3-0.6b-q8", tmp_path, 3):
        with path.open("rb") as file:
            shards.append(parse(file.read(1 << 20)))
    argv = [word.replace("model.gguf", "model-00001-of-00003.gguf") for word in ARGV]
    assert ask(shards, [argv]) == [counted("qwen3-0.6b-q8")]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"attention__sliding_window": 512}, "context"),
        ({"feed_forward_length": 10_240}, None),
        ({"context_length": 4096}, "context_trained"),
    ],
)
def test_another_hyperparameter_gives_another_figure(changes, part):
    before = counted("gemma3-4b-q4km")
    (after,) = ask([gguf_models.header("gemma3-4b-q4km", **changes)], [ARGV])
    moved = {
        "context": before.gpu.context != after.gpu.context,
        "context_trained": before.context_trained != after.context_trained,
    }
    assert [name for name, has in moved.items() if has] == ([part] if part else [])


def test_without_a_card_everything_is_on_the_host():
    (alone,) = ask([gguf_models.header("qwen3-0.6b-q8")], [ARGV], gpu=False)
    beside = counted("qwen3-0.6b-q8")
    assert alone.gpu.total == 0
    assert alone.cuda is None
    assert alone.host.context == beside.gpu.context
    # With a card, the tied output is there once more.
    assert alone.host.weights == beside.gpu.weights


def test_weights_that_stay_on_the_host_are_counted_there():
    header = gguf_models.header("qwen3-30b-a3b-q4km")
    everything, shared = ask([header], [ARGV, [*ARGV, "--cpu-moe"]])
    assert shared.gpu.weights < everything.gpu.weights / 10
    assert shared.gpu.weights + shared.host.weights == everything.gpu.weights + everything.host.weights
    # CUDA copies a layer's experts over for a large batch, so its buffers grow.
    assert shared.gpu.compute > everything.gpu.compute


def test_without_a_number_of_slots_there_are_the_four_of_llama_server():
    header = gguf_models.header("qwen3-0.6b-q8")
    automatic = [word for word in ARGV if word not in ("-np", "1")]
    four = [*automatic, "-np", "4", "--kv-unified"]
    one, other = ask([header], [automatic, four], cuda="all")
    assert one == other


def test_the_callers_environment_does_not_reach_the_engine(monkeypatch, tmp_path):
    header = gguf_models.header("qwen3-0.6b-q8")
    before = counted("qwen3-0.6b-q8")
    (tmp_path / "llama.cpp").mkdir()
    (tmp_path / "llama.cpp" / "config.ini").write_text("[*]\nubatch-size = 2048\n")
    (tmp_path / "corral").mkdir()
    (tmp_path / "corral" / "__init__.py").write_text("raise SystemExit(3)")
    monkeypatch.setenv("LLAMA_ARG_UBATCH", "2048")
    monkeypatch.setenv("LLAMA_ARG_CACHE_TYPE_K", "q8_0")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert ask([header], [ARGV]) == [before]


def test_nothing_stays_behind(monkeypatch, tmp_path):
    monkeypatch.setattr(oracle.tempfile, "tempdir", str(tmp_path))
    ask([gguf_models.header("qwen3-0.6b-q8")], [ARGV])
    with pytest.raises(EngineCannotPredict):
        ask([canonical(gguf_models.header("qwen3-0.6b-q8")).replace(b"qwen3", b"qwenX")], [ARGV])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("headers", "argv", "reason"),
    [
        (
            lambda: [canonical(gguf_models.header("qwen3-0.6b-q8")).replace(b"qwen3", b"qwenX")],
            ARGV,
            "unknown model arch",
        ),
        (
            lambda: [gguf_models.header("qwen3-0.6b-q8", attention__head_count=7)],
            ARGV,
            r"blk\.0\.attn_q\.weight.*wrong shape",
        ),
        (lambda: [gguf_models.header("qwen3-0.6b-q8")], [*ARGV, "--nonsense"], "invalid argument: --nonsense"),
        (lambda: [gguf_models.header("qwen3-0.6b-q8")], with_projector(1024), "there is no header for"),
        (lambda: [gguf_models.header("qwen3-0.6b-q8")] * 2, with_projector(1024), "projector cannot be loaded"),
        (
            lambda: [gguf_models.header("qwen3vl-8b-q4km"), gguf_models.header("mmproj-qwen3vl-8b-f16")],
            with_projector(4),
            "does not take --image-max-tokens 4",
        ),
    ],
)
def test_what_the_engine_does_not_take_is_named_with_its_cause_and_a_way_out(headers, argv, reason):
    with pytest.raises(EngineCannotPredict, match=reason) as error:
        ask(headers(), [argv])
    assert "m/model.gguf" in error.value.message
    assert "vram: {declared_mib: N, why:" in error.value.next_step


def test_the_first_answers_are_kept_when_a_later_one_fails():
    header = gguf_models.header("qwen3-0.6b-q8")
    assert len(ask([header], [ARGV, [*ARGV, "--nonsense"], ARGV], at_least=1)) == 1
    with pytest.raises(EngineCannotPredict):
        ask([header], [ARGV, [*ARGV, "--nonsense"]])


def test_a_child_that_crashes_is_an_error_with_its_signal(child):
    child("import os, signal, sys\nsys.stdin.read()\nos.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(EngineCannotPredict, match="was ended by SIGSEGV"):
        ask([gguf_models.header("qwen3-0.6b-q8")], [ARGV])


def test_a_child_that_hangs_is_an_error(child, monkeypatch):
    child("import signal\nsignal.pause()")
    monkeypatch.setattr(oracle, "LIMITS", oracle.LIMITS._replace(answer_s=0.2))
    with pytest.raises(EngineCannotPredict, match="had not answered"):
        ask([gguf_models.header("qwen3-0.6b-q8")], [ARGV])


@pytest.mark.parametrize(
    ("limits", "program", "reason"),
    [
        ({"processor_s": 1}, "while True: pass", r"took more than 1 s of processor time"),
        ({}, "while True: print('x' * 1000)", "sent what is no answer"),
    ],
    ids=["processor time", "output"],
)
def test_an_engine_that_takes_more_than_its_limits_is_an_error(child, monkeypatch, limits, program, reason):
    child(program)
    monkeypatch.setattr(oracle, "LIMITS", oracle.LIMITS._replace(**limits))
    with pytest.raises(EngineCannotPredict, match=reason):
        ask([gguf_models.header("qwen3-0.6b-q8")], [ARGV])


def test_an_engine_that_closes_its_stdout_and_goes_on_is_an_error(child, monkeypatch):
    child("import os, signal; os.close(0); os.close(1); signal.pause()")
    monkeypatch.setattr(confined, "_END_S", 0.1)
    with pytest.raises(EngineCannotPredict, match="stopped answering"):
        ask([gguf_models.header("qwen3-0.6b-q8")], [ARGV])


def test_memory_that_the_engine_does_not_get_is_an_error(monkeypatch):
    """Without a card the recurrent state of 16 slots is really allocated: 3 GiB."""
    monkeypatch.setattr(oracle, "LIMITS", oracle.LIMITS._replace(memory=1 << 30))
    slots = [word if word != "1" else "16" for word in ARGV]
    with pytest.raises(EngineCannotPredict, match="failed to allocate"):
        ask([gguf_models.header("qwen3.6-27b-q2k")], [slots], gpu=False)


SIDE = {"weights": 1, "context": 1, "compute": 1, "projector": 0}
ANSWER = {
    **dict.fromkeys(("gpu", "host"), SIDE),
    **dict.fromkeys(("f16_copies", "context_trained", "ubatch", "projector_growth", "image_batch"), 1),
    **dict.fromkeys(("cuda", "image_tokens")),
}


@pytest.mark.parametrize(
    "answer",
    [
        "\x1b[2Jno JSON",
        "[" * 100_000,
        "1e999",
        "9" * 10_000,
        "{}",
        '{"cause": "refusal"}',
        '{"cause": "other", "text": "x"}',
        json.dumps({**ANSWER, "more": 1}),
        json.dumps({**ANSWER, "gpu": SIDE | {"weights": -1}}),
        json.dumps({**ANSWER, "gpu": SIDE | {"weights": "1"}}),
        json.dumps({**ANSWER, "gpu": SIDE | {"weights": 1 << 63}}),
        json.dumps({**ANSWER, "host": None}),
        json.dumps({**ANSWER, "ubatch": -1}),
        json.dumps({**ANSWER, "ubatch": 1.5}),
        json.dumps({**ANSWER, "context_trained": 1 << 63}),
    ],
    ids=lambda answer: answer[:40],
)
def test_an_answer_that_the_engine_cannot_give_is_an_error_and_never_a_number(child, answer):
    """The child is replaced: the engine that is pinned does not answer so."""
    child(f"print({answer!r})")
    with pytest.raises(EngineCannotPredict, match=r"the engine sent what is no answer\.$"):
        ask([gguf_models.header("qwen3-0.6b-q8")], [ARGV])


def test_what_a_header_makes_the_engine_state_is_cut_and_without_control_characters():
    header = canonical(gguf_models.header("qwen3-0.6b-q8"))
    name = "\x1b[2J\u202e" + "x" * 2000
    counted = struct.pack("<Q", len(name.encode())) + name.encode()
    hostile = header.replace(struct.pack("<Q", 5) + b"qwen3", counted, 1)
    with pytest.raises(EngineCannotPredict, match=r"unknown model architecture: .*x1b\[2J.*u202exxx") as error:
        ask([hostile], [ARGV])
    assert error.value.message.isprintable()
    assert len(error.value.message) < 1000


def test_a_missing_engine_is_no_matter_of_the_model(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda _name: "2026.11.1")
    with pytest.raises(ProgramMissing, match=r"2026\.11\.1"):
        ask([gguf_models.header("qwen3-0.6b-q8")], [ARGV])


def test_a_wheel_without_the_functions_is_no_matter_of_the_model(child):
    child(
        """
        from corral.vram import native, oracle_child
        native._FUNCTIONS["nbytes"] = ("ggml_gone", None, ())
        oracle_child.main()
        """
    )
    with pytest.raises(ProgramMissing, match="ggml_gone"):
        ask([gguf_models.header("qwen3-0.6b-q8")], [ARGV])


def test_a_build_that_does_not_state_the_tokens_of_an_image_gives_the_projector_without_its_growth(child):
    """The child's engine leaves them out, as builds before b11434 do."""
    child(
        """
        import ctypes
        from corral.vram import native, oracle_child, projector_memory

        begin = native.Native.__init__
        def init(self):
            begin(self)
            whole = self.projector_memory
            def answer(at, *rest):
                returned = whole(at, *rest)
                at._obj.image_max_tokens = projector_memory._UNWRITTEN
                return returned
            self.projector_memory = answer
        native.Native.__init__ = init
        oracle_child.main()
        """
    )
    headers = [gguf_models.header("qwen3vl-8b-q4km"), gguf_models.header("mmproj-qwen3vl-8b-f16")]
    (found,) = ask(headers, [with_projector(1024)])
    [golden] = [cell for cell in GOLDEN["mmproj"]["mmproj-qwen3vl-8b-f16"] if cell["image_max_tokens"] == 1024]
    assert found.gpu.projector == golden["bytes"]["SIM0"]
    assert (found.image_tokens, found.projector_growth) == (None, None)


def test_a_folder_that_takes_no_files_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(oracle.tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(CannotRun, match="gone") as error:
        ask([gguf_models.header("qwen3-0.6b-q8")], [ARGV])
    assert "TMPDIR=" in error.value.next_step


# Each stands for another build: something of it lies elsewhere, or is answered otherwise.
@pytest.mark.parametrize(
    ("moved", "what"),
    [
        ("oracle_child._ROW = 48", "std::vector<common_device_memory_data>"),
        ("oracle_child.TOTAL += 1", "struct common_device_memory_data"),
        ("oracle_child.memory_of = lambda *_: (0, 1)", "the host's row"),
        ("answers(context_params=lambda one: one.model_params)", "struct llama_context_params"),
        ("answers(projector_params=lambda one: native.ProjectorParams)", "struct mtmd_context_params"),
        ("answers(projector_memory=lambda one: lambda at, *_: at)", "mtmd_get_memory_usage"),
        ("answers(buffer_size=lambda one: lambda _: 1)", "ggml_backend_buffer_i"),
        ("answers(alloc_size=lambda one: lambda *_: 1)", "ggml_backend_buffer_type_i"),
        ("answers(device_type=lambda one: lambda _: 2)", "get_type"),
        ("shift(projector_memory._Answer)", "struct mtmd_memory_usage"),
        ("shift(pretend_gpu._Props)", "ggml_backend_dev_props"),
        ("shift(native.Tensor, 'ne')", "struct ggml_tensor"),
        ("shift(native.Tensor, 'op')", "ggml_tensor.op"),
        ("shift(native.Tensor, 'src')", "ggml_tensor.src"),
        ("shift(native.Tensor, 'view_src')", "ggml_tensor.view_src"),
        ("pretend_gpu.PretendGpu._offloads = lambda *_: 1 / 0", "could not be answered"),
        ("native.Native.api_version = lambda _: 4", "GGML_BACKEND_API_VERSION is 4, not 2 or 3"),
        ("native.Native.api_version = lambda _: 2", "stands where"),
    ],
)
def test_an_engine_that_is_laid_out_otherwise_is_an_error_and_never_a_number(child, moved, what):
    child(
        f"""
        import ctypes
        from corral.vram import native, oracle_child, pretend_gpu, projector_memory

        def answers(**functions):
            begin = native.Native.__init__
            def init(self):
                begin(self)
                for name, make in functions.items():
                    setattr(self, name, make(self))
            native.Native.__init__ = init

        def shift(structure, field=None):
            fields = list(structure._fields_)
            fields.insert([None, *(name for name, _ in fields[1:])].index(field), ("before", ctypes.c_uint64))
            setattr(__import__("sys").modules[structure.__module__], structure.__name__,
                    type(structure.__name__, (ctypes.Structure,), {{"_fields_": fields}}))

        {moved}
        oracle_child.main()
        """
    )
    headers = [gguf_models.header("qwen3vl-8b-q4km"), gguf_models.header("mmproj-qwen3vl-8b-f16")]
    with pytest.raises(EngineCannotPredict, match=what):
        ask(headers, [with_projector(1024)])

"""What engines say when they end: those texts that a machine without a GPU cannot be made to say are recorded."""

from __future__ import annotations

import pytest

from corral.why import engine_words
from corral.why.answer import Reason

CUDA_OOM = """\
0.00.413.100 I load_tensors: offloaded 37/37 layers to GPU
0.00.513.412 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4455.34 MiB on device 0: \
cudaMalloc failed: out of memory
0.00.513.415 E alloc_tensor_range: failed to allocate CUDA0 buffer of size 4671764480
0.00.520.001 E srv          init: exiting due to model loading error
"""
NO_PROJECTOR = """\
0.0.0.1 E gguf_init_from_reader: failed to read magic
0.0.0.1 E clip_init: failed to load model '/m/x/mmproj.gguf': clip_model_loader: \
failed to load CLIP model from /m/x/mmproj.gguf. Does this file exist?
"""
NOISE = (
    "0.00.001.000 I srv          init: initializing ...\n"
    "0.00.003.364 W srv          init: security: no API key is set and CORS allows all origins\n"
)


@pytest.mark.parametrize(
    ("words", "reason", "culprit"),
    [
        (CUDA_OOM, Reason.OUT_OF_MEMORY, "cuda"),
        ("CUDA error: out of memory\n  current device: 0, in function alloc", Reason.OUT_OF_MEMORY, "CUDA"),
        (
            "0.1.2.3 E ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 1",
            Reason.OUT_OF_MEMORY,
            "CUDA0",
        ),
        ("terminate called after throwing an instance of 'std::bad_alloc'", Reason.OUT_OF_MEMORY, ""),
        ("error: invalid argument: --no-mmap", Reason.BAD_ARGUMENT, "--no-mmap"),
        ('error while handling argument "-ngl": stoi', Reason.BAD_ARGUMENT, "-ngl"),
        (
            "0.0.0.1 E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 5801",
            Reason.PORT_IN_USE,
            "5801",
        ),
        ("0.0.0.1 E gguf_init_from_reader: failed to read magic", Reason.FILE_DAMAGED, ""),
        (NO_PROJECTOR, Reason.FILE_DAMAGED, "/m/x/mmproj.gguf"),
        ("0.0.0.1 E gguf_init_from_file: failed to open GGUF file '/m/x' (No such file)", Reason.FILE_MISSING, "/m/x"),
        ("preflight: no-engine model=a program=/x/y: it is missing", Reason.ENGINE_MISSING, "/x/y"),
        ("GGML_ASSERT(n_embd == 4) failed", Reason.UNKNOWN, ""),
    ],
)
def test_a_text_has_its_reason(words, reason, culprit):
    said = engine_words.understand(NOISE + words)

    assert (said.reason, said.culprit) == (reason, culprit)


def test_what_is_told_in_passing_is_no_reason():
    said = engine_words.understand("0.00.413.100 I chat: the user asks why cudaMalloc failed: out of memory\n")

    assert said.reason is Reason.UNKNOWN


def test_an_assertion_is_more_telling_than_the_error_after_it():
    said = engine_words.understand("x.cpp:1: GGML_ASSERT(a == b) failed\n0.0.0.1 E srv init: exiting\n")

    assert said.line == "x.cpp:1: GGML_ASSERT(a == b) failed"


def test_only_the_last_start_counts():
    first = "preflight: no-room model=a need_mib=7 free_mib=1 total_mib=9: a needs 7 MiB\n"
    second = "preflight: room model=a need_mib=7 free_mib=8 total_mib=9: a needs 7 MiB\n"
    second += f"{NOISE}error: invalid argument: --x\n"

    assert engine_words.understand(engine_words.last_start(first + second)).reason is Reason.BAD_ARGUMENT


def test_without_a_preflight_the_engines_own_first_line_begins_a_start():
    assert engine_words.last_start(f"old\n{NOISE}new\n") == f"{NOISE}new\n"


def test_the_holders_belong_to_the_start_that_was_refused():
    refused = (
        "preflight: no-room model=a need_mib=7 free_mib=1 total_mib=9: …\npreflight: unattributed for=a held_mib=8: …\n"
    )

    said = engine_words.understand(engine_words.last_start(f"preflight: usage: …\n{refused}"))

    assert [one.code for one in said.refusal] == ["no-room", "unattributed"]


def test_the_preflights_own_records_are_no_word_of_the_engine():
    assert engine_words.understand("preflight: memory-unknown model=a need_mib=7 reason=failed: CUDA").line == ""


def test_silence_is_unknown():
    assert engine_words.understand("") == engine_words.Said(Reason.UNKNOWN)

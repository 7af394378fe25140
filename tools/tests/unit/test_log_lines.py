"""Engines' logs, sorted into codes and fields: recorded, where a machine without a GPU cannot produce the text."""

from __future__ import annotations

import pytest

from corral.engine import embedded, log_lines
from corral.engine.log_lines import EngineCode, EngineError
from corral.paths import REPOSITORY

# Recorded: llama-server on an H200 of which another program left too little, for the weights, the cache, and the rest.
CUDA_OOM = """\
0.01.587.955 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 604.15 MiB on device 0: \
cudaMalloc failed: out of memory
0.01.587.962 E ggml_backend_buft_alloc_buffer_n_default: failed to allocate CUDA0 buffer of size 633495552
0.01.609.918 E llama_model_load: error loading model: unable to allocate CUDA0 buffer
0.01.609.927 E llama_model_load_from_file_impl: failed to load model
0.01.609.933 E srv    load_model: failed to load model, '/m/qwen3-0.6b-q8.gguf'
0.01.610.809 E srv  llama_server: exiting due to model loading error
"""
CUDA_OOM_WITHOUT_A_CONTEXT = (
    "0.00.888.969 W ggml_backend_cuda_device_get_memory: cudaMemGetInfo failed (out of memory), returning 0/0\n"
    + CUDA_OOM
)
CUDA_OOM_OF_THE_CACHE = """\
0.00.520.523 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 448.00 MiB on device 0: \
cudaMalloc failed: out of memory
0.00.520.527 E ggml_backend_buft_alloc_buffer_n_default: failed to allocate CUDA0 buffer of size 469762048
0.00.520.945 E llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
0.00.520.950 E cmn  common_init_: failed to create context with model '/m/qwen3-0.6b-q8.gguf'
0.00.522.067 E srv  llama_server: exiting due to model loading error
"""
CUDA_OOM_AT_WARM_UP = """\
0.00.436.768 I cmn  common_init_: warming up the model with an empty run - please wait ... (--no-warmup to disable)
/src/llama.cpp/ggml/src/ggml-cuda/ggml-cuda.cu:109: CUDA error
0.00.446.112 E CUDA error: out of memory
0.00.446.117 E
"""
NO_PROJECTOR = """\
0.0.0.1 E gguf_init_from_reader: failed to read magic
0.0.0.1 E clip_init: failed to load model '/m/x/mmproj.gguf': clip_model_loader: \
failed to load CLIP model from /m/x/mmproj.gguf. Does this file exist?
"""
CUT_DRAFT = """\
0.0.0.1 E llama_model_load: error loading model: tensor 'blk.0.attn_q.weight' data is not within the file bounds, \
model is corrupted or incomplete
0.0.0.1 E srv    load_model: failed to load draft model, '/m/x/draft.gguf'
"""
CUT_ADAPTER = """\
0.0.0.1 E llama_adapter_lora_init_from_file_ptr: failed to apply lora adapter: LoRA tensor 'output.weight.lora_a' data \
is not within the file bounds, file is corrupted or incomplete
0.0.0.1 E cmn  common_init_: failed to load lora adapter '/m/x/adapter-2.gguf'
"""
NOISE = (
    "0.00.001.000 I srv          init: initializing ...\n"
    "0.00.003.364 W srv          init: security: no API key is set and CORS allows all origins\n"
)


CPU_OOM = """\
0.00.009.618 E ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 18432000064
0.00.009.620 E alloc_tensor_range: failed to allocate CPU buffer of size 18432000000
0.00.009.700 E llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
"""


@pytest.mark.parametrize(
    ("log", "code", "fields"),
    [
        (CUDA_OOM, EngineCode.OUT_OF_MEMORY, {"on_host": False}),
        (CUDA_OOM_WITHOUT_A_CONTEXT, EngineCode.OUT_OF_MEMORY, {"on_host": False}),
        (CUDA_OOM_OF_THE_CACHE, EngineCode.OUT_OF_MEMORY, {"on_host": False}),
        (CUDA_OOM_AT_WARM_UP, EngineCode.OUT_OF_MEMORY, {"on_host": False, "line": "CUDA error: out of memory"}),
        ("CUDA error: out of memory\n  current device: 0, in function alloc", EngineCode.OUT_OF_MEMORY, {}),
        (
            "0.1.2.3 E ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 1",
            EngineCode.OUT_OF_MEMORY,
            {"on_host": False},
        ),
        (CPU_OOM, EngineCode.OUT_OF_MEMORY, {"on_host": True}),
        ("terminate called after throwing an instance of 'std::bad_alloc'", EngineCode.OUT_OF_MEMORY, {}),
        ("error: invalid argument: --no-mmap", EngineCode.BAD_ARGUMENT, {"subject": "--no-mmap"}),
        ('error while handling argument "-ngl": stoi', EngineCode.BAD_ARGUMENT, {"subject": "-ngl"}),
        (
            "0.0.0.1 E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 5801",
            EngineCode.PORT_IN_USE,
            {"port": 5801},
        ),
        ("0.0.0.1 E gguf_init_from_reader: failed to read magic", EngineCode.FILE_DAMAGED, {"subject": ""}),
        (NO_PROJECTOR, EngineCode.FILE_DAMAGED, {"subject": "/m/x/mmproj.gguf"}),
        (CUT_DRAFT, EngineCode.FILE_DAMAGED, {"subject": "/m/x/draft.gguf"}),
        (CUT_ADAPTER, EngineCode.FILE_DAMAGED, {"subject": "/m/x/adapter-2.gguf"}),
        (
            "0.0.0.1 E gguf_init_from_file: failed to open GGUF file '/m/x' (No such file)",
            EngineCode.FILE_MISSING,
            {"subject": "/m/x"},
        ),
        ("preflight: no-engine model=a program=/x/y: …", EngineCode.ENGINE_MISSING, {"subject": "/x/y"}),
        ("GGML_ASSERT(n_embd == 4) failed", EngineCode.OTHER, {"line": "GGML_ASSERT(n_embd == 4) failed"}),
        ("Segmentation fault", EngineCode.OTHER, {"line": "Segmentation fault"}),
        (
            "0.0.0.1 E srv init: a new trouble\n0.0.0.2 I srv init: bye",
            EngineCode.OTHER,
            {"line": "srv init: a new trouble"},
        ),
    ],
)
def test_a_log_has_its_code_and_fields(log, code, fields):
    error = log_lines.classify_engine_error(NOISE + log)

    assert error.code is code
    assert {name: getattr(error, name) for name in fields} == fields


CHAT_TEMPLATE = """\
0.00.131.194 I srv          init: init: chat template, example_format: '<|im_start|>system
You are a helpful assistant<|im_end|>
<|im_start|>assistant
'
"""


@pytest.mark.parametrize(
    "log",
    [
        "",
        "preflight: room model=a need_mib=64 free_mib=9000 total_mib=16000: …\n",
        NOISE,
        NOISE + "0.00.009.996 I cmn  common_init_: warming up the model with an empty run - please wait ...\n",
        NOISE + CHAT_TEMPLATE,
    ],
    ids=["nothing", "preflight-alone", "start", "warm-up", "an-entry-of-several-lines"],
)
def test_a_log_without_an_error_means_that_the_engine_did_not_end_by_itself(log):
    assert log_lines.classify_engine_error(log).code is EngineCode.NO_ERROR
    assert log_lines.cause(log) == ""


def test_the_output_of_another_program_is_no_log_of_an_engine():
    error = log_lines.classify_engine_error("the wrapper has its own idea\n")

    assert (error.code, error.line) == (EngineCode.OTHER, "the wrapper has its own idea")


def test_the_texts_were_read_from_the_versions_that_are_pinned():
    pinned = (REPOSITORY / "tools" / "engine" / "go.mod").read_text(encoding="utf-8")

    assert log_lines.LLAMA_CPP == embedded.LLAMA_CPP_BUILD
    assert f"github.com/mostlygeek/llama-swap {log_lines.LLAMA_SWAP}\n" in pinned


def test_a_message_at_info_level_is_no_reason():
    error = log_lines.classify_engine_error("0.00.413.100 I chat: the user asks why cudaMalloc failed: out of memory\n")

    assert error.code is EngineCode.NO_ERROR


def test_an_assertion_is_more_telling_than_the_error_after_it():
    error = log_lines.classify_engine_error("x.cpp:1: GGML_ASSERT(a == b) failed\n0.0.0.1 E srv init: exiting\n")

    assert error.line == "x.cpp:1: GGML_ASSERT(a == b) failed"


def test_only_the_last_start_counts():
    first = "preflight: no-room model=a need_mib=7 free_mib=1 total_mib=9: a needs 7 MiB\n"
    second = "preflight: room model=a need_mib=7 free_mib=8 total_mib=9: a needs 7 MiB\n"
    second += f"{NOISE}error: invalid argument: --x\n"

    assert log_lines.classify_engine_error(log_lines.last_start(first + second)).code is EngineCode.BAD_ARGUMENT


def test_without_a_preflight_the_engines_own_first_line_begins_a_start():
    assert log_lines.last_start(f"old\n{NOISE}new\n") == f"{NOISE}new\n"


def test_the_holders_belong_to_the_start_that_was_refused():
    refused = (
        "preflight: no-room model=a need_mib=7 free_mib=1 total_mib=9: …\npreflight: unattributed for=a held_mib=8: …\n"
    )

    error = log_lines.classify_engine_error(log_lines.last_start(f"preflight: usage: …\n{refused}"))

    assert [one.code for one in error.refusal] == ["no-room", "unattributed"]


def test_the_preflights_records_are_no_lines_of_the_engine():
    assert (
        log_lines.classify_engine_error("preflight: memory-unknown model=a need_mib=7 reason=failed: CUDA").line == ""
    )


def test_an_empty_log_has_no_error():
    assert log_lines.classify_engine_error("") == EngineError(EngineCode.NO_ERROR)


@pytest.mark.parametrize("starts", ["srv          init: initializing ...", "srv  llama_server: initializing ..."])
def test_a_start_of_the_embedded_engine_and_of_llama_server_ends_what_came_before(starts):
    log = f"{CUDA_OOM}0.00.268.284 I {starts}\n0.00.268.292 I build: 11549\n"

    assert log_lines.classify_engine_error(log_lines.last_start(log)).code is EngineCode.NO_ERROR


def test_a_refused_probe_is_no_evidence_of_an_end():
    probed = "0.02.000.000 W srv    operator(): unauthorized: Invalid API Key\n"
    loading = "0.01.000.000 I srv    load_model: loading model '/m/a.gguf'\n"
    assert log_lines.classify_engine_error(loading + probed) == log_lines.classify_engine_error(loading)
    assert log_lines.classify_engine_error(probed) == EngineError(EngineCode.NO_ERROR)
    assert log_lines.without_probes(["one", probed]) == ["one"]

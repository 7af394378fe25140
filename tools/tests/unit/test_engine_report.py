"""The engine's own words about its buffers, as llama.cpp b11549 writes them."""

from __future__ import annotations

import pytest

from corral.errors import CannotRun
from corral.measure import engine_report

MIB = 1 << 20

# Recorded: the embedded engine at verbosity 4 with the demo's vision model; lines in between are left out.
VISION_ON_CPU = """\
0.00.000.314 I srv          init: initializing ...
0.00.000.330 I cmn  common_param:   - CPU     : AMD EPYC (24105 MiB, 24105 MiB free)
0.00.013.310 I print_info: file size   = 0.61 MiB (16.05 BPW)
0.00.014.984 I load_tensors:   CPU_Mapped model buffer size =     0.61 MiB
0.00.015.175 I llama_context: constructing llama_context
0.00.015.220 I llama_context:        CPU  output buffer size =     0.00 MiB
0.00.015.368 I llama_kv_cache:        CPU KV buffer size =     0.50 MiB
0.00.015.769 I llama_kv_cache: size =    0.50 MiB (  2048 cells,   1 layers,  1/1 seqs)
0.00.017.021 I sched_reserve:        CPU compute buffer size =     5.15 MiB
0.00.020.735 I clip_ctx: CLIP using CPU backend
0.00.021.198 I load_hparams: model size:         0.44 MiB
0.00.021.213 I load_hparams: metadata size:      0.01 MiB
0.00.025.663 I reserve_compute_meta:        CPU compute buffer size =     1.16 MiB
0.00.128.197 I srv    load_model: prompt cache is enabled, size limit: 1024 MiB
0.00.133.797 I srv          init: model loaded
"""

# Recorded: llama-server on an H200 at verbosity 4, with the shapes of Qwen3-VL-8B; lines in between are left out.
VISION_ON_CUDA = """\
0.00.011.148 I ggml_cuda_init: found 1 CUDA devices (Total VRAM: 143155 MiB):
0.00.011.153 I   Device 0: NVIDIA H200, compute capability 9.0, VMM: yes, VRAM: 143155 MiB
0.00.019.442 I srv  llama_server: initializing ...
0.00.340.513 I cmn  common_param:   - CUDA0   : NVIDIA H200 (143155 MiB, 100426 MiB free)
0.00.340.527 I cmn  common_param:   - CPU     : Intel(R) Xeon(R) Processor (128887 MiB, 128887 MiB free)
0.00.540.441 I print_info: file size   = 4.68 GiB (4.90 BPW)
0.01.994.152 I load_tensors:   CPU_Mapped model buffer size =   333.84 MiB
0.01.994.153 I load_tensors:        CUDA0 model buffer size =  4455.34 MiB
0.03.450.218 I llama_context: constructing llama_context
0.03.451.225 I llama_context:  CUDA_Host  output buffer size =     0.58 MiB
0.03.451.566 I llama_kv_cache:      CUDA0 KV buffer size =  1152.00 MiB
0.03.485.638 I sched_reserve:      CUDA0 compute buffer size =   152.02 MiB
0.03.485.670 I sched_reserve:  CUDA_Host compute buffer size =    88.02 MiB
0.03.625.398 I clip_ctx: CLIP using CUDA0 backend
0.03.625.911 I load_hparams: model size:         1105.32 MiB
0.05.508.169 I reserve_compute_meta:      CUDA0 compute buffer size =   180.06 MiB
0.05.508.174 I reserve_compute_meta:        CPU compute buffer size =    12.06 MiB
0.05.562.678 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 8192, kv_unified = 'false'
0.05.564.728 I srv  llama_server: model loaded
0.18.112.023 W ~llama_context:      CUDA0 compute buffer size of 276.0820 MiB, \
does not match expectation of 152.0197 MiB
"""


def mib(size: float) -> int:
    return round(size * MIB)


def test_without_a_card_all_of_it_is_the_hosts():
    report = engine_report.parse(VISION_ON_CPU)
    assert report is not None
    assert report.cards == {}
    assert report.host == pytest.approx(mib(0.61 + 0.50 + 5.15 + 0.44 + 1.16), abs=5)


def test_card_and_host_are_apart_and_the_card_has_its_drivers_name():
    report = engine_report.parse(VISION_ON_CUDA)
    assert report is not None
    assert report.cards == {"NVIDIA H200": pytest.approx(mib(4455.34 + 1152 + 152.02 + 1105.32 + 180.06), abs=5)}
    assert report.host == pytest.approx(mib(333.84 + 0.58 + 88.02 + 12.06), abs=5)


def test_a_projector_on_the_cpu_takes_nothing_on_the_card():
    log = VISION_ON_CUDA.replace("CLIP using CUDA0", "CLIP using CPU").replace(
        "reserve_compute_meta:      CUDA0", "reserve_compute_meta:        CPU"
    )
    report = engine_report.parse(log)
    assert report is not None
    assert report.cards == {"NVIDIA H200": pytest.approx(mib(4455.34 + 1152 + 152.02), abs=5)}


def test_several_caches_are_added_up():
    """A model with a sliding window has two, each with a line of its own."""
    window = "0.00.015.400 I llama_kv_cache:        CPU KV buffer size =     0.25 MiB\n"
    more = VISION_ON_CPU.replace("0.00.017.021", window + "0.00.017.021", 1)
    assert _host(more) - _host(VISION_ON_CPU) == mib(0.25)


def test_a_context_that_reserves_again_counts_once_with_its_last_size():
    again = "0.00.017.900 I sched_reserve:        CPU compute buffer size =     6.15 MiB\n"
    log = VISION_ON_CPU.replace("0.00.020.735", again + "0.00.020.735", 1)
    assert _host(log) - _host(VISION_ON_CPU) == mib(6.15) - mib(5.15)


def test_a_second_context_counts_beside_the_first():
    """A draft model has one of its own."""
    draft = (
        "0.00.017.800 I llama_context: constructing llama_context\n"
        "0.00.017.900 I sched_reserve:        CPU compute buffer size =     2.00 MiB\n"
    )
    log = VISION_ON_CPU.replace("0.00.020.735", draft + "0.00.020.735", 1)
    assert _host(log) - _host(VISION_ON_CPU) == mib(2.00)


def test_weights_that_a_cpu_has_repacked_count_once():
    """Recorded with a model in Q4_0: the mapping reaches from the first tensor that was not repacked to the last."""
    repacked = (
        VISION_ON_CPU.replace("file size   = 0.61 MiB", "file size   = 10.56 MiB")
        .replace("CPU_Mapped model buffer size =     0.61", "CPU_Mapped model buffer size =    10.56")
        .replace(
            "0.00.015.175",
            "0.00.009.251 I load_tensors:   CPU_REPACK model buffer size =    10.34 MiB\n0.00.015.175",
        )
    )
    assert _host(repacked) - _host(VISION_ON_CPU) == pytest.approx(mib(10.56 - 0.61), abs=5)


def test_only_the_last_load_counts():
    first = VISION_ON_CPU.replace("5.15 MiB", "99.00 MiB")
    assert engine_report.parse(first + VISION_ON_CPU) == engine_report.parse(VISION_ON_CPU)


@pytest.mark.parametrize(
    "log",
    [
        "",
        VISION_ON_CPU.partition("init: model loaded")[0],
        VISION_ON_CPU[60:],
        VISION_ON_CPU + VISION_ON_CPU.partition("load_tensors")[0],
        "\n".join(line for line in VISION_ON_CPU.splitlines() if "buffer size" not in line),
        "\n".join(line for line in VISION_ON_CPU.splitlines() if "compute buffer" not in line),
    ],
    ids=["nothing", "still-loading", "start-rolled-away", "second-load-failed", "verbosity-3", "no-compute"],
)
def test_a_log_without_a_whole_load_has_no_report(log):
    assert engine_report.parse(log) is None


def test_memory_of_an_unknown_kind_is_refused_by_name():
    with pytest.raises(CannotRun, match="kind NPU0") as error:
        engine_report.parse(VISION_ON_CUDA.replace("CUDA0 KV", "NPU0 KV"))
    assert "--source nvidia-smi" in error.value.next_step


@pytest.mark.parametrize(
    ("kind", "on_card"),
    [
        ("CPU", False),
        ("CPU_Mapped", False),
        ("CPU_REPACK", False),
        ("CUDA_Host", False),
        ("Vulkan_Host", False),
        ("CUDA0", True),
        ("ROCm0", True),
        ("Vulkan0", True),
        ("MTL0_Mapped", True),
    ],
)
def test_kinds_of_memory(kind, on_card):
    report = engine_report.parse(VISION_ON_CPU.replace("CPU KV", f"{kind} KV"))
    assert report is not None
    assert bool(report.cards) is on_card


def _host(log: str) -> int:
    report = engine_report.parse(log)
    assert report is not None
    return report.host

"""What the role llama_cpp reads out of a disassembly: the script runs on the host, so it is loaded from its file."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from corral import paths

SCRIPT = paths.REPOSITORY / "ansible/roles/llama_cpp/files/prove_build.py"


@pytest.fixture(scope="module")
def proof():
    spec = importlib.util.spec_from_file_location("prove_build", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize(
    ("instruction", "needs"),
    [
        ("movaps %xmm0,%xmm1", None),
        ("pshufb %xmm0,%xmm1", None),
        ("pextrw $0x0,%xmm0,%eax", None),  # SSE2, though it begins as BMI2's pext does
        ("popcnt %rax,%rax", None),
        ("vmcall", None),
        ("verr (%rax)", None),
        ("vaddps %ymm0,%ymm1,%ymm2", "AVX"),
        ("vmovss (%rax),%xmm0", "AVX"),
        ("vzeroupper", "AVX"),
        ("vptest %ymm0,%ymm0", "AVX"),
        ("vpaddd %xmm0,%xmm1,%xmm2", "AVX"),
        ("vpaddd %ymm0,%ymm1,%ymm2", "AVX2"),
        ("vpbroadcastd %xmm0,%xmm1", "AVX2"),
        ("vinserti128 $0x1,%xmm0,%ymm1,%ymm1", "AVX2"),
        ("vfmadd231ps %ymm0,%ymm1,%ymm2", "FMA"),
        ("vcvtph2ps %xmm0,%ymm0", "F16C"),
        ("rorx $0x3,%rax,%rcx", "BMI2"),
        ("vaddps %zmm0,%zmm1,%zmm2", "AVX512"),
        ("kmovw %eax,%k1", "AVX512"),
    ],
)
def test_an_instruction_needs_its_extension(proof, instruction, needs):
    mnemonic, _, operands = instruction.partition(" ")
    assert proof.feature(mnemonic, operands) == needs


def test_instructions_are_counted_where_they_stand(proof):
    lines = [
        "",
        "0000000000001000 <ggml_vec_dot_f32(int, float*)>:",
        "    1000:\tpush   %rbp",
        "    1001:\tvfmadd231ps %ymm0,%ymm1,%ymm2",
        "    1007:\tvmovaps %ymm0,(%rax)",
        "0000000000002000 <main>:",
        "    2000:\t{vex} vpdpbusd %ymm0,%ymm1,%ymm2",
        "    2004:\trep stos %rax,%es:(%rdi)",
        "    2006:\tret",
    ]
    assert proof.found_features(lines) == {
        "FMA": {"ggml_vec_dot_f32(int, float*)": 1},
        "AVX": {"ggml_vec_dot_f32(int, float*)": 1},
        "AVX2": {"main": 1},
    }


def test_code_behind_a_look_at_the_cpu_can_be_excused_by_name(proof, monkeypatch):
    lines = ["0000000000001000 <fast_avx2>:", "    1000:\tvpaddd %ymm0,%ymm1,%ymm2"]
    monkeypatch.setattr(proof, "disassembly", lambda _program: lines)
    assert proof.contained(SCRIPT, []) == {"AVX2": {"fast_avx2": 1}}
    assert proof.contained(SCRIPT, ["^fast_"]) == {}


@pytest.mark.parametrize(
    ("reports", "contains", "sentence"),
    [
        ({"AVX": 1, "FMA": 1}, {}, "reports AVX, FMA"),
        ({"AVX": 0}, {"AVX": {"dot": 7, "add": 1}}, "still contains 8 AVX instructions, in dot (7), add (1)"),
    ],
    ids=["reported", "contained"],
)
def test_a_build_without_avx_neither_reports_nor_contains_it(proof, reports, contains, sentence):
    with pytest.raises(proof.Unproven) as refused:
        proof.require_no_avx(SCRIPT, reports, contains)
    assert sentence in str(refused.value)
    proof.require_no_avx(SCRIPT, {"AVX": 0, "SSE3": 1}, {})


def test_a_build_for_this_cpu_uses_what_the_cpu_has(proof):
    used = {"AVX2": {"dot": 1}, "FMA": {"dot": 1}}
    proof.require_native(SCRIPT, used, {"avx2", "fma", "sse4_2"})
    with pytest.raises(proof.Unproven, match="no F16C instruction"):
        proof.require_native(SCRIPT, used, {"avx2", "fma", "f16c"})

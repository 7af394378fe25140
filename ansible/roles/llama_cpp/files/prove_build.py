"""Verify that built llama.cpp programs match their profile, by what they report and by what they contain.

A program reports the flags that it was compiled with, and these are easy to get wrong: gcc's -mf16c implies -mavx, BMI2
stays on when AVX is off, a renamed flag has no effect.  So the machine code is read too.

Prints the findings as JSON; exit code 1 and a sentence on stderr when a claim of the profile does not hold.  Standard
library only: the script runs on the host that built the programs.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

X86 = ("x86_64", "AMD64")
_AVX_WITHOUT_AVX2 = ("vptest", "vpermilps", "vpermilpd", "vpinsr", "vpextr")
_AVX2_ANY_WIDTH = ("vpbroadcast", "vpgather", "vgather", "vpsllv", "vpsrlv", "vpsrav", "vpblendd", "vpmaskmov")
_AVX2_LANES = ("vinserti128", "vextracti128", "vbroadcasti128", "vperm2i128", "vpermq", "vpermd", "vpermps", "vpermpd")
_FMA = ("vfmadd", "vfmsub", "vfnmadd", "vfnmsub")
_F16C = ("vcvtph2ps", "vcvtps2ph")
_BMI2 = re.compile(r"(?:bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx)[lq]?")  # pextrw is SSE2
_FIRST_LETTERS = ("b", "k", "m", "p", "r", "s", "v")  # of every mnemonic that feature() recognises
_PREFIXES = ("bnd", "cs", "data16", "ds", "lock", "notrack", "rep", "repnz", "repz", "rex.W")
_VECTOR_REGISTER = re.compile(r"%[xyz]mm\d")
_MASK_REGISTER = re.compile(r"%k[0-7]")
_SYMBOL = re.compile(r"^[0-9a-f]+ <(?P<name>.+)>:$")
_SHOWN = 3


class Unproven(Exception):
    """A claim of the profile does not hold, or cannot be checked here."""


def feature(mnemonic: str, operands: str) -> str | None:
    """The extension past SSE4.2 that an x86 instruction (in AT&T syntax) needs; None when it needs none."""
    if _BMI2.fullmatch(mnemonic):
        return "BMI2"
    if not mnemonic.startswith(("v", "k")):
        return None
    if "%zmm" in operands or _MASK_REGISTER.search(operands):
        return "AVX512"
    if mnemonic in {"vldmxcsr", "vstmxcsr", "vzeroall", "vzeroupper"}:
        return "AVX"
    if not mnemonic.startswith("v") or not _VECTOR_REGISTER.search(operands):
        return None  # virtualisation (vmcall, …) and segment checks (verr, …) begin with v too
    if mnemonic.startswith(_FMA):
        return "FMA"
    if mnemonic.startswith(_F16C):
        return "F16C"
    if mnemonic.startswith(_AVX2_ANY_WIDTH + _AVX2_LANES):
        return "AVX2"
    wide_integer = "%ymm" in operands and mnemonic.startswith(("vp", "vmpsadbw", "vmovntdqa"))
    return "AVX2" if wide_integer and not mnemonic.startswith((*_AVX_WITHOUT_AVX2, "vperm2f128")) else "AVX"


def found_features(disassembly: Iterable[str]) -> dict[str, Counter[str]]:
    """By extension and symbol, the number of such instructions in the lines of ``objdump -d --no-show-raw-insn``."""
    found: dict[str, Counter[str]] = {}
    symbol = "(no symbol)"
    known: dict[str, bool] = {}
    for line in disassembly:
        if line.startswith(" "):
            words = line.partition("\t")[2].split(None, 1)
            while len(words) == 2 and (words[0] in _PREFIXES or words[0].startswith("{")):
                words = words[1].split(None, 1)
            if not words:
                continue
            mnemonic = words[0]
            if not known.setdefault(mnemonic, mnemonic.startswith(_FIRST_LETTERS)):
                continue
            needed = feature(mnemonic, words[1].partition("#")[0] if len(words) == 2 else "")
            if needed:
                found.setdefault(needed, Counter())[symbol] += 1
        elif match := _SYMBOL.match(line.rstrip()):
            symbol = match["name"]
    return found


def disassembly(program: Path) -> Iterator[str]:
    """The lines that objdump makes of *program*."""
    if shutil.which("objdump") is None:
        raise Unproven("This machine has no objdump, so the build cannot be verified. Install binutils.")
    command = ["objdump", "--disassemble", "--no-show-raw-insn", "--demangle", str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as dump:
        yield from dump.stdout or ()
    if dump.returncode:
        raise Unproven(f"objdump cannot read {program}.")


def contained(program: Path, dispatched: list[str]) -> dict[str, dict[str, int]]:
    """Instructions by extension and symbol, without the symbols that *dispatched* (regular expressions) excuses."""
    excused = re.compile("|".join(f"(?:{pattern})" for pattern in dispatched)) if dispatched else None
    kept = {}
    for name, symbols in found_features(disassembly(program)).items():
        left = {symbol: count for symbol, count in symbols.most_common() if not (excused and excused.search(symbol))}
        if left:
            kept[name] = left
    return kept


def output_of(program: Path, *arguments: str) -> str:
    """What *program* prints on both streams; it may fail but must start."""
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unproven(f"{program} does not run on this machine: {error}") from None
    if done.returncode < 0:
        command = " ".join((str(program), *arguments))
        raise Unproven(f"{command} was ended by signal {-done.returncode}: {done.stdout.strip()[-500:]}")
    return done.stdout


def require_version(program: Path, build: int, commit: str | None) -> str:
    """The first line of ``--version``, which must name *build* and *commit*."""
    text = output_of(program, "--version")
    match = re.search(r"version:.*?(?:build\s+)?(\d+)[^\n]*", text)
    line = match[0] if match else text.strip()[:200]
    if not re.search(rf"\b{build}\b", line):
        raise Unproven(f"{program} reports “{line}”; the inventory pins build {build}.")
    if commit and commit not in line:
        raise Unproven(f"{program} reports “{line}”; the inventory pins commit {commit}.")
    return line


def reported_features(program: Path) -> dict[str, int]:
    """What *program* reports as ``system_info`` (``AVX = 1 | …``); it fails to load /dev/null after that."""
    text = output_of(program, "--verbose", "--offline", "--model", "/dev/null", "--host", "127.0.0.1", "--port", "0")
    line = next((line for line in text.splitlines() if "system_info:" in line), "")
    return {name: int(value) for name, value in re.findall(r"([A-Z][A-Z0-9_]*) = (\d+)", line)}


def cpu_flags() -> set[str]:
    """The flags of this machine's CPU as Linux names them; empty elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return set()
    match = re.search(r"^flags\s*:\s*(.*)$", text, re.MULTILINE)
    return set(match[1].split()) if match else set()


def require_no_avx(program: Path, reported: dict[str, int], has: dict[str, dict[str, int]]) -> None:
    """Require that no extension past SSE4.2 is reported or contained."""
    claimed = sorted(name for name in ("AVX", "AVX2", "AVX512", "F16C", "FMA", "BMI2") if reported.get(name))
    if claimed:
        raise Unproven(f"{program} reports {', '.join(claimed)}, which profile no-avx turns off.")
    if has:
        parts = []
        for name, symbols in sorted(has.items()):
            worst = ", ".join(f"{symbol} ({count})" for symbol, count in list(symbols.items())[:_SHOWN])
            parts.append(f"{sum(symbols.values())} {name} instructions, in {worst}")
        raise Unproven(
            f"{program} still contains {'; '.join(parts)}. On a CPU without them it ends with an illegal instruction."
            " If that code runs only after a check of the CPU, name its symbols in llama_cpp_dispatched_symbols."
        )


def require_native(program: Path, has: dict[str, dict[str, int]], flags: set[str]) -> None:
    """Require that the extensions of this CPU are used."""
    wanted = [name for name in ("AVX2", "FMA", "F16C") if name.lower() in flags]
    missing = [name for name in wanted if name not in has]
    if missing:
        raise Unproven(
            f"{program} contains no {' and no '.join(missing)} instruction, though this CPU has them."
        )


def require_debug(program: Path) -> None:
    """Require debugging information."""
    headers = output_of(Path(shutil.which("objdump") or "objdump"), "--section-headers", str(program))
    if ".debug_info" not in headers:
        raise Unproven(f"{program} has no .debug_info: its backtraces would show only addresses.")


def require_cuda(program: Path, architectures: list[str]) -> list[str]:
    """Require CUDA libraries and, where cuobjdump is installed, code for each of *architectures*."""
    linked = output_of(Path(shutil.which("ldd") or "ldd"), str(program))
    libraries = sorted(set(re.findall(r"lib(?:cuda|cudart|cublas)\.so[.\d]*", linked)))
    if not libraries:
        raise Unproven(f"{program} is not linked against CUDA: it would run on the CPU without a warning.")
    cuobjdump = shutil.which("cuobjdump", path="/usr/local/cuda/bin") or shutil.which("cuobjdump")
    if cuobjdump:
        listed = output_of(Path(cuobjdump), "--list-elf", "--list-ptx", str(program))
        missing = [wanted for wanted in architectures if f"sm_{wanted}" not in listed]
        if missing:
            raise Unproven(f"{program} has no code for compute capability {', '.join(missing)}.")
    return libraries


def require_metal(program: Path) -> None:
    """Require Apple's Metal."""
    if "/Metal.framework/" not in output_of(Path("/usr/bin/otool"), "-L", str(program)):
        raise Unproven(f"{program} is not linked against Metal: it would run on the CPU without a warning.")


def prove(arguments: argparse.Namespace) -> dict[str, object]:
    """The findings about every program.

    Raises:
        Unproven: a claim of the profile does not hold.
    """
    findings: dict[str, object] = {"machine": platform.machine(), "profile": arguments.profile}
    for program in arguments.programs:
        server = program.name == "llama-server"
        about: dict[str, object] = {"bytes": program.stat().st_size}
        if program.name in {"llama-server", "llama-cli"}:
            about["version"] = require_version(program, arguments.build, arguments.commit)
        reported = reported_features(program) if server else {}
        if reported:
            about["reports"] = reported
        if platform.machine() in X86 and platform.system() == "Linux":
            has = contained(program, arguments.dispatched)
            about["contains"] = {name: sum(symbols.values()) for name, symbols in sorted(has.items())}
            if arguments.profile == "no-avx":
                require_no_avx(program, reported, has)
            else:
                require_native(program, has, cpu_flags())
        if arguments.profile == "debug":
            require_debug(program)
        if arguments.profile in {"cuda", "jetson"}:
            wanted = ["87"] if arguments.profile == "jetson" else arguments.cuda_architecture
            about["linked"] = require_cuda(program, wanted)
        if arguments.profile == "metal":
            require_metal(program)
        findings[program.name] = about
    return findings


def main() -> int:
    """Print the findings, or the claim that does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="+", type=Path)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--build", required=True, type=int)
    parser.add_argument("--commit")
    parser.add_argument("--cuda-architecture", action="append", default=[])
    parser.add_argument("--dispatched", action="append", default=[], metavar="REGEX")
    try:
        sys.stdout.write(json.dumps(prove(parser.parse_args())) + "\n")
    except Unproven as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The role llama_cpp with the real llama.cpp: most of an hour, so only with --long.

make test-hosts ARGS="--long -k llama_cpp_long"
"""

from __future__ import annotations

import json

import pytest

from corral.demo import tiny_gguf
from tests.support.engine_process import chat, get
from tests.support.hosts.host import Host, wait_for
from tests.support.hosts.images import Image
from tests.support.hosts.llama_cpp_archive import real_release
from tests.support.hosts.playbook import play_role

pytestmark = pytest.mark.timeout(4 * 3600)

BUILD_LIMIT_S = 7200


@pytest.fixture(scope="module")
def host(room):
    """One host; what compiles on it was installed from its Debian's own packages."""
    host = Host(room, "builder", Image("debian-12"))
    try:
        host.start()
        yield host
    finally:
        host.stop()


@pytest.fixture(scope="module")
def build(host, say):
    """Builds a profile, prints the seconds that compiling took, and returns the findings about llama-server."""

    def build(profile: str, ccache: str) -> dict:
        variables = real_release() | {"llama_cpp_profile": profile, "llama_cpp_ccache": ccache != "without"}
        play_role("llama_cpp", [host], variables=variables, limit_s=BUILD_LIMIT_S).succeeded()
        record = json.loads(host.run(f"cat /opt/llama.cpp/b11434-{profile}/build.json"))
        load = host.run("cut -d' ' -f1 /proc/loadavg")
        say(f"{profile}, {ccache} ccache: {record['seconds']:.0f} s (load at the end {load})")
        return record["proof"]["llama-server"]

    return build


def again(host, profile):
    """Forget the installed *profile*, so that it is built once more."""
    host.run(f"rm -r /opt/llama.cpp/b11434-{profile}")


def test_cpu_uses_what_the_processor_has(host, build):
    flags = host.run("grep -m1 ^flags /proc/cpuinfo").split()
    proof = build("cpu", "without")
    assert "build 11434" in proof["version"]
    for flag, extension in (("avx2", "AVX2"), ("fma", "FMA"), ("f16c", "F16C")):
        assert (proof["reports"].get(extension, 0), extension in proof["contains"]) == (flag in flags, flag in flags)


def test_no_avx_is_free_of_it_in_word_and_in_code(host, build):
    proof = build("no-avx", "an empty")
    assert proof["contains"] == {}
    assert not {"AVX", "AVX2", "AVX512", "F16C", "FMA", "BMI2"} & proof["reports"].keys()


def test_a_full_ccache_gives_the_same_build(host, build):
    again(host, "no-avx")
    assert build("no-avx", "a full")["contains"] == {}
    again(host, "cpu")
    assert "AVX2" in build("cpu", "another profile's")["contains"]


def test_debug_has_symbols_and_dumps_a_graph(host, build, tmp_path):
    build("debug", "another profile's")
    programs = "/opt/llama.cpp/b11434-debug/bin"
    assert ".debug_info" in host.run(f"objdump -h {programs}/llama-server")
    host.put(_tiny_model(tmp_path), "/srv/tiny.gguf")
    dumped = host.run(f"{programs}/llama-eval-callback -m /srv/tiny.gguf -p Hello -n 1 -c 256 2>&1")
    assert "MUL_MAT" in dumped


def test_every_build_answers(host, tmp_path):
    host.put(_tiny_model(tmp_path), "/srv/tiny.gguf")
    for profile in ("cpu", "no-avx", "debug"):
        program = f"/opt/llama.cpp/b11434-{profile}/bin/llama-server"
        words = "-m /srv/tiny.gguf --host 0.0.0.0 --port 9000 -c 512 -np 1 --offline"
        host.run(f"systemd-run --quiet --unit=server {program} {words}")
        try:
            wait_for("the server", lambda: get(f"http://{host.address}:9000/health")[0] == 200, seconds=30)
            assert chat(f"http://{host.address}:9000", "Hello.")["message"]["content"] == "OK"
        finally:
            host.run("systemctl stop server")


def _tiny_model(folder) -> bytes:
    tiny_gguf.write_text(folder / "tiny.gguf")
    return (folder / "tiny.gguf").read_bytes()

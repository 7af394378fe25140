"""The role llama_cpp on real hosts, with a stand-in for llama.cpp that compiles in a second.

The real source takes ten minutes: test_llama_cpp_long.py.
"""

from __future__ import annotations

import json

import pytest

from tests.support.hosts.llama_cpp_archive import release
from tests.support.hosts.playbook import play_cases, play_role

pytestmark = pytest.mark.timeout(600)

LINK = "/opt/llama.cpp/current"


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    return tmp_path_factory.mktemp("archives")


@pytest.fixture(scope="module")
def installed(hosts, archives):
    """The hosts with builds 1 and 2 of the stand-in, in this order."""
    for build in (1, 2):
        play_role("llama_cpp", hosts, variables=release(archives, build)).succeeded()
    return hosts


@pytest.fixture
def one(installed):
    """One of them: every host refuses in the same way before anything runs."""
    return installed[-1:]


def serving(hosts):
    """The target of the link and the program's version, over all hosts: one element when they agree."""
    return {(host.run(f"readlink {LINK}"), host.run(f"{LINK}/bin/llama-server --version")) for host in hosts}


def version_line(build, text="commit b"):
    return f"version: 0.6.0-dev (build {build}, {text}{build})"


# The tests before `installed` need bare hosts, so they run first.


REFUSED = {
    "no release": ({}, "must name a build and one source"),
    "short commit": ({"llama_cpp_release": {"build": 3, "commit": "abc1234"}}, "all 40 hex digits"),
    "no checksum": ({"llama_cpp_release": {"build": 3, "archive": "x.tgz"}}, "has no sha256"),
    "no such profile": ({"llama_cpp_profile": "fast"}, "value of llama_cpp_profile must be one of"),
    "roll back to nothing": ({"llama_cpp_rollback_to": "b7-cpu"}, "it has: nothing"),
}
WITHOUT_THEIR_MACHINE = {
    "metal": "Profile metal is for macOS",
    "jetson": "Profile jetson is for 64-bit ARM",
    "cuda": "Profile cuda needs nvcc",
}


@pytest.fixture(scope="module")
def refused(hosts, archives):
    """The outcome of each case that a bare host refuses, in one run."""
    pinned = release(archives, 1) | {"llama_cpp_install_packages": False}
    profiles = {profile: pinned | {"llama_cpp_profile": profile} for profile in WITHOUT_THEIR_MACHINE}
    llguidance = {"llguidance": pinned | {"llama_cpp_cmake_flags": {"LLAMA_LLGUIDANCE": "ON"}}}
    refused = {case: variables for case, (variables, _) in REFUSED.items()}
    return play_cases("llama_cpp", hosts[:1], refused | profiles | llguidance)


def test_llguidance_is_refused_where_there_is_no_cargo_to_compile_it(refused):
    refused["llguidance"].refused("LLAMA_LLGUIDANCE needs cargo")


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_built_is_refused_before_anything_changes(refused, case):
    refused[case].refused(REFUSED[case][1])


@pytest.mark.parametrize("profile", WITHOUT_THEIR_MACHINE)
def test_a_profile_without_its_machine_or_toolchain_is_refused(refused, profile):
    refused[profile].refused(WITHOUT_THEIR_MACHINE[profile])


def test_a_check_of_a_bare_host_fails_on_nothing_and_changes_nothing(hosts, archives):
    before = [host.changed_files() for host in hosts]
    play_role("llama_cpp", hosts, "--check", variables=release(archives, 1)).succeeded()
    assert [host.run("ls /opt") for host in hosts] == [""] * len(hosts)
    assert [host.changed_files() - old for host, old in zip(hosts, before, strict=True)] == [set()] * len(hosts)


def test_versions_stand_side_by_side_and_the_newest_serves(installed):
    assert serving(installed) == {("b2-cpu", version_line(2))}
    assert {host.run("ls /opt/llama.cpp") for host in installed} == {"b1-cpu\nb2-cpu\ncurrent"}


def test_a_second_run_changes_nothing(installed, archives):
    played = play_role("llama_cpp", installed, variables=release(archives, 2)).succeeded()
    assert set(played.changed.values()) == {0}


def test_one_variable_rolls_back_and_nothing_is_compiled(installed, archives):
    back = release(archives, 2) | {"llama_cpp_rollback_to": "b1-cpu"}
    played = play_role("llama_cpp", installed, variables=back).succeeded()
    assert serving(installed) == {("b1-cpu", version_line(1))}
    assert set(played.changed.values()) == {1}


@pytest.fixture(scope="module")
def broken(installed, archives):
    """The outcome of each release that cannot be installed, in one run; the current version stays in use."""
    host = installed[-1:]
    before = serving(host)
    other = release(archives, 5)
    other["llama_cpp_release"]["sha256"] = "0" * 64
    cases = {
        "never installed": release(archives, 2) | {"llama_cpp_rollback_to": "b9-cpu"},
        "spoiled": release(archives, 3, appended="#error spoiled\n"),
        # As a distribution's CFLAGS would: the program reports AVX = 0, and has AVX instructions.
        "lying": release(archives, 4)
        | {"llama_cpp_profile": "no-avx", "llama_cpp_cmake_flags": {"CMAKE_C_FLAGS": "-mavx2"}},
        "other archive": other,
        "unknown flag": release(archives, 6) | {"llama_cpp_cmake_flags": {"GGML_CUBLAS": "ON"}},
        "other recipe": release(archives, 2) | {"llama_cpp_cmake_flags": {"GGML_LTO": "ON"}},
    }
    played = play_cases("llama_cpp", host, cases)
    assert serving(host) == before
    return played


def test_rolling_back_to_what_was_never_installed_names_what_is(broken):
    broken["never installed"].refused("has no b9-cpu", "it has: b1-cpu, b2-cpu")


def test_a_build_that_fails_leaves_the_old_version_serving(broken):
    played = broken["spoiled"]
    assert played.failed
    assert "b3-cpu was not installed" in played.text
    assert "#error spoiled" in played.text
    assert "/opt/llama.cpp/current is b1-cpu" in " ".join(played.text.split())


def test_code_that_the_profile_forbids_is_found_though_the_program_denies_it(broken):
    assert broken["lying"].failed
    assert "still contains" in broken["lying"].text
    assert "multiply_add" in broken["lying"].text


def test_an_archive_that_is_not_the_pinned_one_is_not_unpacked(one, broken):
    assert broken["other archive"].failed
    assert "It is another archive, or damaged" in broken["other archive"].text
    assert one[0].run(f"ls /var/cache/llama.cpp/source/{'0' * 64}") == ""


def test_a_flag_that_the_source_does_not_know_is_refused(broken):
    assert broken["unknown flag"].failed
    assert "b6 does not know GGML_CUBLAS" in broken["unknown flag"].text


def test_an_installed_version_is_never_changed_in_place(broken):
    broken["other recipe"].refused("built from another recipe", '"GGML_LTO": "ON"')


def test_no_avx_proves_that_it_has_none(one, archives):
    play_role("llama_cpp", one, variables=release(archives, 7) | {"llama_cpp_profile": "no-avx"}).succeeded()
    proof = json.loads(one[0].run(f"cat {LINK}/build.json"))["proof"]["llama-server"]
    assert proof["contains"] == {}
    assert proof["reports"]["AVX"] == 0


def test_debug_has_symbols_and_may_be_compiled_through_ccache(one, archives):
    debug = {"llama_cpp_profile": "debug", "llama_cpp_ccache": True}
    play_role("llama_cpp", one, variables=release(archives, 7) | debug).succeeded()
    proof = json.loads(one[0].run(f"cat {LINK}/build.json"))["proof"]["llama-server"]
    assert proof["contains"].keys() >= {"AVX2", "FMA"}
    assert ".debug_info" in one[0].run(f"objdump -h {LINK}/bin/llama-eval-callback")
    assert one[0].run("find /var/cache/llama.cpp/ccache -type f | wc -l") != "0"

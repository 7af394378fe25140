"""`make test-cluster` and `make test-hosts` on a machine that lacks Debian packages: their messages, and INSTALL=1.

Stand-ins for apt-get and sudo: a test installs nothing on the machine that it runs on.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest

from corral import paths

DEV = paths.REPOSITORY / "tools" / "dev"
TOOLS = ("bash", "chmod", "dirname", "rm", "sort", "uname")


@pytest.fixture
def machine(tmp_path):
    """A machine of root's that has bash and little else; apt-get records its arguments."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in TOOLS:
        (programs / name).symlink_to(shutil.which(name))

    def put(name, script):
        (programs / name).write_text(f"#!{shutil.which('bash')}\n{script}\n")
        (programs / name).chmod(0o755)

    def run(*words, **variables):
        environment = {"PATH": str(programs), "POLICY_RC_D": str(tmp_path / "policy-rc.d"), **variables}
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    put("id", "echo 0")
    run.put, run.folder = put, tmp_path
    return run


def test_test_cluster_names_all_packages_and_the_command_in_one_line(machine):
    done = machine(DEV / "test_cluster.sh")

    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("test-cluster: Debian packages are missing: ")
    assert {"containerd", "docker-registry", "mmdebstrap", "runc"} <= set(done.stderr.split(". ")[0].split())
    assert done.stderr.endswith(". Install them, starting no service: INSTALL=1 make test-cluster\n")


def test_test_hosts_names_what_is_missing_and_not_what_is_there(machine):
    machine.put("ssh", "")
    done = machine(DEV / "test_hosts.sh")

    assert done.returncode == 3
    assert done.stderr == (
        "test-hosts: Debian packages are missing: e2fsprogs gpg gpg-agent iproute2 libnfs-utils mmdebstrap "
        "qemu-system-x86 qemu-utils systemd-container util-linux xfsprogs. "
        "Install them, starting no service: INSTALL=1 make test-hosts\n"
    )


def bring(machine, **variables):
    code = f"source {DEV}/debian_packages.sh; mapfile -t names < <(lacking here=present one=first two=second)"
    machine.put("here", "")
    return machine("bash", "-c", f'{code}; bring it "make it" "${{names[@]}}"; echo went on', **variables)


def test_they_are_installed_while_services_are_held_back(machine):
    log, policy = machine.folder / "log", machine.folder / "policy-rc.d"
    machine.put("apt-get", f'echo "$* $({policy}; echo $?)" >>{log}')
    done = bring(machine, INSTALL="1")

    assert done.stdout == "went on\n", done.stderr
    update, install = log.read_text().splitlines()
    assert update == "update --quiet=2 101"
    assert install == "install --quiet=2 --yes --no-install-recommends first second 101"
    assert not policy.exists()


def test_a_policy_that_the_machine_has_stays(machine):
    policy = machine.folder / "policy-rc.d"
    policy.write_text("the machine's own")
    machine.put("apt-get", "")

    assert bring(machine, INSTALL="1").returncode == 0
    assert policy.read_text() == "the machine's own"


def test_a_user_without_root_installs_with_sudo(machine):
    machine.put("id", "echo 1000")
    machine.put("sudo", f'echo sudo >>{machine.folder}/log; exec "$@"')
    machine.put("apt-get", "")

    assert bring(machine, INSTALL="1").stdout == "went on\n"
    assert (machine.folder / "log").read_text() == "sudo\n"


def test_an_apt_that_fails_ends_it(machine):
    machine.put("apt-get", "echo no network >&2; exit 100")
    done = bring(machine, INSTALL="1")

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith("no network\nit: apt-get could not install them; see above\n")
    assert not (machine.folder / "policy-rc.d").exists()


def test_nothing_is_asked_where_nothing_is_missing(machine):
    done = machine("bash", "-c", f'source {DEV}/debian_packages.sh; bring it "make it"; echo went on')

    assert done.stdout == "went on\n"

"""The images of the cluster tests, and the registry's folder in the cache.

* ``fetch`` stands in for python:3.13-slim: Debian 13 with its own Python 3.13, and no curl.
* ``llama-swap`` stands in for the public llama-swap image: the real llama-swap, in front of the engine that corral's
  virtual environment holds, with /app/llama-swap and /app/llama-server where the public image has them.
* ``llama-swap-alone`` is that image without the engine.
* ``llama-server`` stands in for the image of llama.cpp's server: the same engine and no llama-swap, and like there
  /app is not on PATH, the user is root, and the environment has the engine listen on every address.
* ``door`` stands in for caddy:2.11-alpine: the real Caddy, at that image's path and with its file capability.
* ``gateway`` stands in for ghcr.io/berriai/litellm-non_root: LiteLLM's real proxy, on Debian's Python 3.13.  It is
  large, and pushed where a test needs it.
* ``vllm`` stands in for vllm/vllm-openai, and has a stand-in for vLLM (``vllm_stand_in``): vLLM's image needs a card.
  It is pushed where a test needs it, too.
* ``pause`` holds a pod's name spaces.
"""

from __future__ import annotations

import functools
import struct
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from corral import output, paths
from corral.engine import binaries
from corral.engine.embedded import LLAMA_CPP_BUILD
from corral.files import OwnFolder
from tests.support.cluster import oci
from tests.support.cluster.oci import File, Image, Layer, Link, written
from tests.support.cluster.programs import PAUSE

LLAMA_SWAP = "llama-swap"
LLAMA_SWAP_ALONE = "llama-swap-alone"
LLAMA_SERVER = "llama-server"
FETCH = "fetch"
DOOR = "door"
GATEWAY = "gateway"
USER = "10001:10001"

_SUITE = "trixie"
_PUSH_LIMIT_S = 600.0
_PACKAGES = ("ca-certificates", "curl", "libgomp1", "libstdc++6", "python3")
_RECIPE = [
    *("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(_PACKAGES)}"),
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")),
    "--customize-hook=rm -rf $1/var/lib/apt/lists $1/var/cache/apt $1/var/log/*",
]
# cap_net_bind_service=ep, as the official image's program has it: it does not start where all capabilities are dropped.
_MAY_BIND = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENGINE_FILES = (
    "corral/__init__.py",
    "corral/agent/__init__.py",
    "corral/agent/errors.py",
    "corral/engine/__init__.py",
    "corral/engine/embedded.py",
    "corral/engine/llama_server.py",
    "corral/engine/openmp.py",
    "corral/errors.py",
)
"""What ``corral-llama-server`` consists of: nothing else of corral, and no package but the engine's wheel."""
_SERVER = b"""#!/usr/bin/python3 -B
import sys

sys.path.insert(0, "/usr/lib/corral")
from corral.engine.llama_server import main

main()
"""


def all_images() -> dict[str, Image]:
    """Every image by its name here; builds llama-swap and Caddy when they are missing.

    Raises:
        CannotRun: it cannot be built.
    """
    debian = base()
    # More threads wait for each other by spinning: several times the processor time where cores are shared.
    threads = "LLAMA_ARG_THREADS=1"
    swap = {
        "User": USER,
        "WorkingDir": "/app",
        "Env": [f"PATH=/app:{_PATH}", "HOME=/app", threads],
        "Entrypoint": ["/app/llama-swap", "-config", "/app/config.yaml"],
    }
    return {
        FETCH: Image("python", "3.13-slim", (debian, _slim()), {"Env": [f"PATH={_PATH}"], "Cmd": ["python3"]}),
        DOOR: Image(
            "caddy",
            "2.11-alpine",
            (debian, _caddy()),
            {"Env": [f"PATH={_PATH}", "XDG_CONFIG_HOME=/config", "XDG_DATA_HOME=/data"], "Cmd": ["caddy", "run"]},
        ),
        LLAMA_SWAP: Image(
            "llama-swap", f"v260-cpu-{LLAMA_CPP_BUILD}", (debian, _wheel(), _supervisor(), _server()), swap
        ),
        LLAMA_SWAP_ALONE: Image("llama-swap", "v260-alone", (debian, _supervisor()), swap),
        LLAMA_SERVER: Image(
            "llama.cpp",
            f"server-{LLAMA_CPP_BUILD}",
            (debian, _wheel(), _server()),
            {
                "WorkingDir": "/app",
                "Env": [f"PATH={_PATH}", "LLAMA_ARG_HOST=0.0.0.0", threads],
                "Entrypoint": ["/app/llama-server"],
            },
        ),
    }


def gateway() -> Image:
    """LiteLLM's proxy, whose options are the container's arguments."""
    settings = {
        "User": "65534",
        "WorkingDir": "/app",
        "Env": [f"PATH={_PATH}", "PYTHONPATH=/usr/lib/litellm"],
        "Entrypoint": ["/usr/bin/python3", "-c", "import litellm; litellm.run_server()"],
    }
    return Image("litellm-non_root", "1.106.2", (base(), _litellm()), settings)


def vllm() -> Image:
    """The stand-in for vLLM, as the command ``vllm``; as in vLLM's image, the user is root."""
    program = b"#!/usr/bin/python3 -B\n" + Path(__file__).with_name("vllm_stand_in.py").read_bytes()
    entries = [File("/usr/local/bin/vllm", program, 0o755)]
    layer = Layer("vllm", repr(entries), written(entries))
    return Image("vllm-openai", "v0.32.0", (base(), layer), {"Env": [f"PATH={_PATH}"], "Entrypoint": ["vllm", "serve"]})


def push(image: Image, registry: str, *, timeout_s: float = _PUSH_LIMIT_S) -> str:
    """Push *image* to *registry*, as ``push_all`` does; its reference."""
    for layer in image.layers:
        layer.make()
    with OwnFolder(paths.cache_dir(), "XDG_CACHE_HOME").exclusive_lock(store(), timeout_s=timeout_s):
        return oci.push(image, registry)


def pause() -> Image:
    """The image that holds a pod together."""
    program = PAUSE.build(output.info) / "pause"
    layer = Layer("pause", str(program.parent.name), written([File("/pause", program, 0o755)]))
    return Image("pause", "1", (layer,), {"Entrypoint": ["/pause"]})


def store() -> Path:
    """Where the registry keeps what it was given; shared by all clusters, everything in it under its digest."""
    return paths.cache_dir() / "cluster-registry"


def push_all(registry: str, *, timeout_s: float = _PUSH_LIMIT_S) -> dict[str, str]:
    """Push every image to *registry* (HOST:PORT); their references by the names of ``all_images``.

    One cluster at a time: each has a registry of its own, all of them write one folder, and a registry reads files
    that another is still writing.

    Raises:
        CannotRun: the registry refuses one, or another cluster pushes for longer than *timeout_s* seconds.
    """
    images = all_images()
    for image in (pause(), *images.values()):
        for layer in image.layers:
            layer.make()
    with OwnFolder(paths.cache_dir(), "XDG_CACHE_HOME").exclusive_lock(store(), timeout_s=timeout_s):
        oci.push(pause(), registry)
        return {name: oci.push(image, registry) for name, image in images.items()}


def base() -> Layer:
    """The Debian that all images but ``pause`` begin with."""

    def write(target: Path) -> None:
        output.info("making the images' Debian 13 with Python 3.13: about a minute, once ...")
        subprocess.run([*_RECIPE, "--format=tar", _SUITE, str(target)], check=True, stdin=subprocess.DEVNULL)

    return Layer("debian", "\n".join([*_RECIPE, _SUITE]), write)


def _slim() -> Layer:
    """Debian's Python at the paths of the official image's, and no curl."""
    entries: list[File | Link] = [
        File("/usr/bin/.wh.curl", b""),
        Link("/usr/local/bin/python", "/usr/bin/python3"),
        Link("/usr/local/bin/python3", "/usr/bin/python3"),
    ]
    return Layer("python", repr(entries), written(entries))


def _wheel() -> Layer:
    """The engine's wheel as it is installed; its extension runs in any Python from 3.10 on."""
    distribution = metadata.distribution("xllamacpp")
    record = distribution.read_text("RECORD") or ""
    found = [(str(file), Path(str(distribution.locate_file(file)))) for file in distribution.files or ()]
    entries = [
        File(f"/usr/lib/corral/{name}", path, 0o755 if path.suffix == ".so" else 0o644)
        for name, path in sorted(found)
        if path.is_file() and path.suffix != ".pyc" and not name.startswith("..")
    ]
    return Layer("engine", record, written(entries))


def _litellm() -> Layer:
    lock = paths.REPOSITORY / "tools" / "dev" / "gateway" / "requirements.lock"

    def write(target: Path) -> None:
        output.info("installing LiteLLM's proxy for the images' Python 3.13: a few minutes, once ...")
        with tempfile.TemporaryDirectory(prefix="corral-litellm-") as place:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
            command += ["--only-binary", ":all:", "--python-version", "3.13", "--target", place]
            subprocess.run([*command, "--require-hashes", "-r", str(lock)], check=True, stdin=subprocess.DEVNULL)
            found = sorted(path for path in Path(place).rglob("*") if path.is_file() and not path.is_symlink())
            modes = {path: 0o755 if path.suffix == ".so" else 0o644 for path in found}
            entries = [File(f"/usr/lib/litellm/{path.relative_to(place)}", path, modes[path]) for path in found]
            written(entries)(target)

    return Layer("litellm", lock.read_text(), write)


def _supervisor() -> Layer:
    program = binaries.llama_swap(output.info)
    return Layer("llama-swap", str(program), written([File("/app/llama-swap", program, 0o755)]))


def _caddy() -> Layer:
    program = binaries.caddy().path
    entries = [File("/usr/bin/caddy", program, 0o755, _MAY_BIND)]
    return Layer("caddy", f"{program} {_MAY_BIND!r}", written(entries))


@functools.cache
def _server() -> Layer:
    """``llama-server`` as a command, and the little of corral that it consists of."""
    entries = [File("/app/llama-server", _SERVER, 0o755)]
    entries += [
        File(f"/usr/lib/corral/{name}", (paths.REPOSITORY / "tools" / name).read_bytes()) for name in ENGINE_FILES
    ]
    return Layer("llama-server", repr(entries), written(entries))

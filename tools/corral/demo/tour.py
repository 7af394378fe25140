"""The whole path with small models: from a hub through lock, store, Terraform and engines to answers and a diagnosis.

Each step is the command that a user would type, run as a process of its own.
"""

from __future__ import annotations

import codecs
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from corral import keys, paths, templates
from corral.demo.hub import Hub, RepoContent
from corral.demo.smollm2 import SMOLLM2
from corral.demo.tiny_gguf import write_all
from corral.engine import binaries, ports, stack
from corral.errors import CannotRun, Failed, Refused
from corral.keys import LocalKeys

REAL = "smollm2"
"""The real language model of the demo's catalog; the others are generated, and their answers are known."""

_ADDED = "tiny-added"
_ADD = ("add", "corral/tiny-text-GGUF:F16", "--name", _ADDED, "--group", "text", "--context", "1024", "--yes")
_CLIENT = "demo"
_CLIENTS = f"clients:\n  {_CLIENT}: {{{{models: [{{models}}], requests: 2}}}}\n"
# OpenMP's threads wait for each other by spinning: beside other work on the same cores, a language model on the
# processor then waits most of the time for a thread that has none.
_BESIDE_OTHER_WORK = {"OMP_WAIT_POLICY": "passive"}


@dataclass(frozen=True)
class Tour:
    """Where a tour keeps its files.

    Attributes:
        state: the state folder of the local stack; the tour's own files are in ``demo`` below it.
        say: receives what happens, line by line.
        show: receives an answer, piece by piece.
    """

    state: Path
    say: Callable[[str], None]
    show: Callable[[str], None]

    @property
    def catalog(self) -> Path:
        """The tour's copy of the demo catalog: it locks it anew, and leaves the repository alone."""
        return self.state / "demo" / "catalog"

    def run(self, *, keep: bool, tiny: bool = False, with_keys: bool = False, port: int | None = None) -> None:
        """Run all steps; stop what they started unless *keep*.

        Args:
            keep: leave the stack running.
            tiny: without the real language model, whose file must be fetched.
            with_keys: with a client that has a key.
            port: of the door; by default the usual one, or a free one.

        Raises:
            Refused: a local stack is already running.
            CannotRun: the real model's file or a program is missing, and cannot be fetched or built.
            Failed: a step failed; its own output has the reason.
        """
        if stack.running(self.state):
            raise Refused("A local stack is already running here.", next_step="corral down, then: make demo")
        with ThreadPoolExecutor(1) as pool:  # the network is busy while the processor is
            fetched = None if tiny else pool.submit(SMOLLM2.bring, self.say)
            binaries.llama_swap(self.say)
        weights = fetched.result() if fetched else None
        self._copy_catalog(tiny=tiny, with_clients=with_keys)
        with Hub(demo_repositories(self.state / "demo" / "hub", weights)) as hub:
            environment = {**_BESIDE_OTHER_WORK, **os.environ}
            environment |= {"HF_ENDPOINT": hub.endpoint, "CORRAL_STATE": str(self.state)}
            environment.pop("HF_TOKEN", None)
            step = partial(self._step, environment)
            step("Resolve the catalog against the hub: commits, sizes, hashes, command lines", "lock")
            step("Does it fit? What each model takes, by the engine's own count, without a download", "seat")
            port = port or _free_port()
            try:
                step("Fetch, verify, render with Terraform, start", "up", "--detach", "--port", str(port))
                endpoint, key = f"http://127.0.0.1:{port}", self._client_key(environment) if with_keys else ""
                if not tiny:
                    self._stream(endpoint, key)
                step("Prove that every model answers, and answers right", "smoke")
                # 3: on an overloaded machine the evidence may not be there in time.
                step("Had a model not answered, this would give the reason", "why", accepted=(0, 3))
                self._try_clients(endpoint, key)
                step("Who holds the card: promised, predicted, measured, held", "card", accepted=(0, 1))
                step("Add a model of the hub with one command: its file, its lock, its seat", *_ADD)
                step("Apply that to the running stack, on the same port", "up", "--detach", "--port", str(port))
                step("Prove that the added model answers", "smoke", _ADDED)
            finally:
                if not keep:
                    step("Stop", "down", catalog=False)
        if keep:
            self.say(f"\nIt is still running: {_CORRAL} status   Smoke it: {_CORRAL} smoke   Stop it: {_CORRAL} down")
        else:
            self.say("\nTo keep it running and try this yourself: make demo KEEP=1")

    def _copy_catalog(self, *, tiny: bool, with_clients: bool) -> None:
        try:
            if self.catalog.exists():
                shutil.rmtree(self.catalog)
            copy_catalog(self.catalog, tiny=tiny)
            if with_clients:
                clients = _CLIENTS.format(models="tiny-text" if tiny else f"tiny-text, {REAL}")
                (self.catalog / "clients.yaml").write_text(clients, encoding="utf-8")
        except OSError as error:
            raise CannotRun(
                f"The state folder {self.state} cannot be used: {error.strerror or error}.",
                next_step="Choose another with: CORRAL_STATE=DIR",
            ) from None

    def _step(
        self,
        environment: dict[str, str],
        title: str,
        *words: str,
        catalog: bool = True,
        accepted: Collection[int] = (0,),
    ) -> None:
        command = [*words, *(["--catalog", str(self.catalog)] if catalog else [])]
        shown = [_shown(Path(word)) if word.startswith("/") else word for word in command]
        self.say(f"\n# {title}\n$ {_CORRAL} {shlex.join(shown)}")
        done = subprocess.run([sys.executable, "-m", "corral.cli.main", *command], env=environment, check=False)
        if done.returncode not in accepted:
            raise Failed(
                f"corral {words[0]} ended with exit code {done.returncode}.",
                next_step="Read its output above; the stack's own log: corral logs",
            )

    def _client_key(self, environment: dict[str, str]) -> str:
        """A new key of the demo's client, which is valid at once; it is not shown."""
        store = LocalKeys(self.state)
        if store.read().of.get(_CLIENT):  # of a demo before
            keys.revoke(store, _CLIENT, only_old=False)
        words = ["keys", "add", _CLIENT, "--catalog", str(self.catalog)]
        self.say(f"\n# Give a client of the catalog its key\n$ export CORRAL_KEY=$({_CORRAL} keys add {_CLIENT})")
        command = [sys.executable, "-m", "corral.cli.main", *words]
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"corral keys ended with exit code {done.returncode}: {done.stderr}")
        return done.stdout.strip()

    def _stream(self, endpoint: str, key: str) -> None:
        """The answer of the real model, as it comes.  Nothing but its form is judged: it is a small model."""
        self.say(f"\n# Ask {SMOLLM2.title}: its answer comes piece by piece")
        script = templates.render("try_stream.py.j2", endpoint=endpoint, model=REAL)
        self.say(f"{script.rstrip()}\n→")
        answer, code = relay([sys.executable, "-c", script], {**os.environ, "CORRAL_KEY": key}, self.show)
        self.say("")
        if code or not answer.strip():
            raise Failed(
                f"{REAL} did not stream an answer: exit code {code}, {len(answer)} characters.",
                next_step="Read the output above; the stack's own log: corral logs",
            )

    def _try_clients(self, endpoint: str, key: str) -> None:
        self.say("\n# Send it a request yourself: with curl, and with the OpenAI SDK")
        for name, interpreter in (("try_curl.sh.j2", ["bash", "-c"]), ("try_openai.py.j2", [sys.executable, "-c"])):
            script = templates.render(name, endpoint=endpoint, model="tiny-text")
            if name == "try_curl.sh.j2" and shutil.which("curl") is None:
                self.say(f"{script}(not run: there is no curl on this machine)")
                continue
            self.say(script.rstrip())
            done = subprocess.run(
                [*interpreter, script],
                env={**os.environ, "CORRAL_KEY": key},
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            if done.returncode or "OK" not in done.stdout:
                raise Failed(f"{name.removesuffix('.j2')} did not get its answer:\n{done.stdout}{done.stderr}")
            self.say(f"→ {done.stdout.strip()}\n")


def relay(command: list[str], environment: Mapping[str, str], show: Callable[[str], None]) -> tuple[str, int]:
    """Run *command*, *show* what it prints to stdout while it prints it; the whole of that, and its exit code."""
    decoder, pieces = codecs.getincrementaldecoder("utf-8")("replace"), []
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            while chunk := os.read(child.stdout.fileno(), 4096):
                pieces.append(decoder.decode(chunk))
                show(pieces[-1])
        except BaseException:  # its rest has no reader
            child.kill()
            raise
    return "".join(pieces), child.returncode


def copy_catalog(target: Path, *, tiny: bool = False) -> None:
    """Copy models and cards of the demo's catalog to *target*, without its lock; only the generated models if *tiny*.

    Raises:
        OSError: a file cannot be written.
    """
    ignored = shutil.ignore_patterns(f"{REAL}.yaml") if tiny else None
    for folder in ("models", "cards"):
        source = paths.REPOSITORY / "terraform" / "catalog-demo" / folder
        shutil.copytree(source, target / folder, ignore=ignored)


def tiny_hub(folder: Path) -> Hub:
    """A hub on loopback with the repositories of the tiny models; their files are made in *folder*."""
    return Hub(tiny_repositories(folder))


def demo_repositories(folder: Path, weights: Path | None = None) -> dict[str, RepoContent]:
    """All repositories of the demo: those of the tiny models, made in *folder*, and the one of the real *weights*."""
    repositories = tiny_repositories(folder)
    if weights:  # 98 MB that are read from the file for each request, and whose hash is known
        content = RepoContent({weights.name: weights}, digests={weights.name: SMOLLM2.sha256})
        repositories["corral/SmolLM2-135M-Instruct-GGUF"] = content
    return repositories


def tiny_repositories(folder: Path) -> dict[str, RepoContent]:
    """The repositories of the tiny models as a hub takes them; their files are made in *folder*."""
    return {repo: RepoContent(files) for repo, files in write_tiny_repositories(folder).items()}


def write_tiny_repositories(folder: Path) -> dict[str, dict[str, Path]]:
    """The repositories of the tiny models, their files in *folder*: repository to (path in it, file)."""
    tiny = write_all(folder)
    repositories = {"text": [tiny.text], "think": [tiny.thinking], "vision": [tiny.vision, tiny.projector]}
    return {f"corral/tiny-{name}-GGUF": {file.name: file for file in files} for name, files in repositories.items()}


def _shown(path: Path) -> str:
    """*path* as one would type it here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


_CORRAL = _shown(Path(sys.executable).with_name("corral"))


def _free_port() -> int:
    """The usual port of the door; another where that one is taken."""
    try:
        ports.require_free(ports.DOOR)
    except CannotRun:
        return ports.other_door()
    return ports.DOOR

"""Commands to be typed as they are: with the folders and the port that are not the default ones."""

from __future__ import annotations

import shlex

from corral.why.facts import Place, StackFacts


class Steps:
    """What can be typed next about one model.

    Args:
        place: what commands must name.
        stack: the stack that they are about.
        model: its id.
    """

    def __init__(self, place: Place, stack: StackFacts, model: str) -> None:
        self._catalog = ["--catalog", str(place.catalog)] if place.catalog else []
        self._store = ["--store", str(place.store)] if place.store else []
        self._port = ["--port", str(place.port)] if place.port else []
        self._stack = stack
        self._model = model

    def of(self, *words: str, stored: bool = False) -> str:
        """``corral`` *words* for the catalog; *stored*: and for the store."""
        return shlex.join(["corral", *words, *self._catalog, *(self._store if stored else [])])

    def up(self) -> str:
        """Start the stack where it was."""
        return self.of("up", "--detach", *self._port, stored=True)

    def begin(self) -> list[str]:
        """Have something serve: here, or in a cluster where no folder was named that only this machine has."""
        return [self.up()] if self._catalog or self._store else [self.up(), "corral apply"]

    def restart(self) -> list[str]:
        """Stop the stack, and start it where it was."""
        return ["corral down", self.up()]

    def look(self) -> list[str]:
        """See what the engine says, and try it."""
        return [shlex.join(["corral", "logs", self._model, "-n", "50"]), self.smoke()]

    def smoke(self) -> str:
        """Ask the model."""
        return self.of("smoke", self._model)

    def again(self) -> str:
        """The same question once more."""
        return self.of("why", self._model)

    def status(self) -> str:
        """See what is loaded."""
        return "corral status"

    def fetch(self) -> list[str]:
        """Bring the files."""
        return [self.of("fetch", self._model, stored=True)]

    def verify(self) -> list[str]:
        """Read the files, and bring those that are not what they should be."""
        words = ["verify", self._model]
        return [self.of(*words, stored=True), self.of(*words, "--repair", stored=True)]

    def warm(self) -> list[str]:
        """Read the files, so that the next load need not."""
        return [self.of("warm", self._model, stored=True)]

    def engine(self) -> str:
        """See which llama-server would be used."""
        return "corral engine"

    def memory(self) -> str:
        """See what memory the machine has left."""
        return "free -h"

    def kills(self) -> list[str]:
        """See whether the kernel killed an engine for its memory."""
        events = f"cat /sys/fs/cgroup$(sed -n s/^0:://p /proc/{self._stack.pid}/cgroup)/memory.events"
        return ["sudo dmesg | grep -i -e out.of.memory -e oom-kill", events, self.memory()]

    def listeners(self, port: int) -> str:
        """See who listens on *port*."""
        return f"ss -ltnp sport = :{port}"

    def unload(self, model: str) -> str:
        """Have llama-swap unload *model*, whatever it is doing."""
        return shlex.join(["curl", "-X", "POST", f"{self._stack.endpoint}/api/models/unload/{model}"])

    def card(self) -> list[str]:
        """See who holds the card, where that can be seen."""
        return ["nvidia-smi"] if self._stack.has_nvidia_smi else []

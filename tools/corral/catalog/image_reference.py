"""The name of a container image, in the one form that corral takes: ``name:tag``, and its digest where it is known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from corral.agent.hub_policy import printable

_REGISTRY = r"(?:localhost|[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)+)(?::[0-9]+)?|[a-zA-Z0-9-]+:[0-9]+"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_NAME = rf"(?:(?:{_REGISTRY})/)?{_PART}(?:/{_PART})*"
_DIGEST = "sha256:[0-9a-f]{64}"
PATTERN = rf"^{_NAME}:{_TAG}(@{_DIGEST})?$"
"""What an editor checks; ``ImageReference.parse`` explains in words what is wrong."""
PINNED_PATTERN = rf"^{_NAME}:{_TAG}@{_DIGEST}$"

_FORM = re.compile(rf"({_NAME})(?::({_TAG}))?(?:@({_DIGEST}))?")
_REGISTRY_AND_PATH = re.compile(rf"(?:({_REGISTRY})/)?(.*)")
_PASSWORD = re.compile(r".*@(?!sha256:)", re.DOTALL)  # what precedes a host in an address; no image has one
_LOOPBACK = ("localhost", "127.0.0.1")
_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")


@dataclass(frozen=True)
class ImageReference:
    """A container image.

    Attributes:
        name: as it is written, e.g. ``python`` or ``ghcr.io/mostlygeek/llama-swap``.
        tag: one that names a version, so never ``latest``.
        digest: ``sha256:`` and 64 hexadecimal digits; None where only a registry knows it.
    """

    name: str
    tag: str
    digest: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """*text* taken apart.

        Raises:
            ValueError: it is no image's name, has no tag, or the tag ``latest``; the message is a sentence.
        """
        found = _FORM.fullmatch(text)
        if found is None:
            shown = printable(_PASSWORD.sub("…@", text))
            raise ValueError(
                f"{shown!r} is not an image: it must be like ghcr.io/org/name:tag, in lower case, "
                "and may end in @sha256: with 64 hexadecimal digits."
            )
        name, tag, digest = found.groups()
        if tag is None:
            raise ValueError(f"{text} has no tag: write the version that you want, e.g. {name}:v1.")
        if tag == "latest":
            raise ValueError(f"{text} has the tag latest, which names no version: write the one that you want.")
        return cls(name, tag, digest)

    @property
    def tagged(self) -> str:
        """``name:tag``."""
        return f"{self.name}:{self.tag}"

    @property
    def registry(self) -> str:
        """Host and port of its registry; an image without one is on Docker Hub."""
        named, _ = self._registry_and_path()
        return "registry-1.docker.io" if named is None or named in _DOCKER_HUB else named

    @property
    def repository(self) -> str:
        """Its path at the registry; Docker's own images are in ``library/`` there."""
        _, path = self._registry_and_path()
        return f"library/{path}" if self.registry == "registry-1.docker.io" and "/" not in path else path

    @property
    def is_on_loopback(self) -> bool:
        """Whether the registry is on this machine: only such a one is used without TLS."""
        return self.registry.partition(":")[0] in _LOOPBACK

    def _registry_and_path(self) -> tuple[str | None, str]:
        found = _REGISTRY_AND_PATH.fullmatch(self.name)
        assert found
        return found[1], found[2]

    def at(self, digest: str) -> str:
        """``name:tag@digest``, as the lock and Kubernetes have it."""
        return f"{self.tagged}@{digest}"

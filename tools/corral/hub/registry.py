"""Asks a container registry about an image: the digest of its tag, its labels, the tags beside it; never a layer.

The OCI distribution protocol, as far as that takes: a GET of the manifest, and the anonymous token that Docker Hub and
ghcr.io require first.  The clients on PyPI bring a second HTTP library and do not compare the digest with the body.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar
from urllib.parse import urlencode

from pydantic import TypeAdapter

from corral.agent.errors import Code
from corral.agent.hub_policy import Budgets, HubPolicy, origin_of, printable
from corral.catalog.image_reference import ImageReference
from corral.engine import builds
from corral.errors import CannotRun, CorralError, Refused
from corral.hub.answers import IMAGE_CONFIG, IMAGE_MANIFEST, TAGS, TOKEN, Platform, parse
from corral.hub.guarded_http import Answer, GuardedClient, NoAnswer

_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_ACCEPT = {"Accept": ", ".join((*_INDEXES, *_MANIFESTS))}
_PLATFORM = Platform(os="linux", architecture="amd64")
_CHALLENGE = re.compile(r'(?<![a-z_])(?P<key>[a-z_]{1,20})="(?P<value>[^"]*)"', re.IGNORECASE)
_BUDGETS = Budgets(listing_bytes=4 << 20)  # the protocol's own limit of a manifest
_AGAIN = "Check the network, then: corral lock"
_MOST_TAGS = 1000
_BUILDS_BELOW = 500
"""Of the missing one: with these the list of tags begins."""

_T = TypeVar("_T")


def digest_at_registry(image: ImageReference) -> str:
    """The digest that *image*'s tag has now; of the index of all platforms where the image has several.

    Raises:
        Refused: there is no such image or tag, it is private, or the answer is not a manifest.  Where the tag names a
            build of llama.cpp that is not there, the error names the nearest ones that are.
        CannotRun: the registry did not answer as a registry does.
    """
    registry = _Registry(image)
    answer = registry.get(f"manifests/{image.tag}", _ACCEPT)
    if answer.status == 404 and (near := registry.nearest()):
        raise Refused(
            f"{image.registry} has no image {image.repository}:{image.tag}; the nearest builds there are "
            f"{' and '.join(near)}.",
            next_step=f"Write {image.name}:{near[0]} into images.yaml",
        )
    _require_found(image, answer.status)
    return _digest(image, answer)


def labels_at_registry(image: ImageReference) -> Mapping[str, str]:
    """The labels of *image* at its digest; of its linux/amd64 part where it has several.

    Raises:
        Refused, CannotRun: as ``digest_at_registry``.
    """
    assert image.digest
    registry = _Registry(image)
    manifest = registry.parsed(IMAGE_MANIFEST, f"manifests/{image.digest}", image.digest)
    if manifest.manifests:
        own = [one.digest for one in manifest.manifests if one.platform == _PLATFORM]
        if not own:
            message = f"{image.tagged} has no part for {_PLATFORM.os}/{_PLATFORM.architecture}."
            raise Refused(message, next_step=_correct(image))
        manifest = registry.parsed(IMAGE_MANIFEST, f"manifests/{own[0]}", own[0])
    if manifest.config is None:
        return {}
    content = registry.parsed(IMAGE_CONFIG, f"blobs/{manifest.config.digest}", manifest.config.digest)
    return content.config.labels or {}


class _Registry:
    """Requests about one image, which share their budgets and their token."""

    def __init__(self, image: ImageReference) -> None:
        self._image = image
        self._policy = HubPolicy(f"{'http' if image.is_on_loopback else 'https'}://{image.registry}", budgets=_BUDGETS)
        self._client = GuardedClient(self._policy, elsewhere=True, unusable=CannotRun, next_step=_AGAIN)

    def get(self, path: str, accept: Mapping[str, str]) -> Answer:
        """The answer at *path* of the image's repository, of any status."""
        image, client = self._image, self._client
        try:
            address = self._policy.first(f"/v2/{image.repository}/{path}")
            answer = client.get(address, accept)
            if answer.status == 401 and client.policy.token is None:
                client.policy = replace(self._policy, token=_token(client, image, answer))
                answer = client.get(address, accept)
        except NoAnswer as error:
            message = f"The registry {image.registry} does not answer: {error.reason}."
            raise CannotRun(message, next_step=_AGAIN) from None
        except CorralError as error:
            if error.code is Code.OTHER:
                raise
            # Not of HF_ENDPOINT.
            raise type(error)(f"{image.tagged}: {error.message}", next_step=_correct(image)) from None
        return answer

    def parsed(self, form: TypeAdapter[_T], path: str, digest: str) -> _T:
        """What is at *path*, whose bytes have *digest*, of the given *form*."""
        answer = self.get(path, _ACCEPT if path.startswith("manifests/") else {})
        _require_found(self._image, answer.status)
        found = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
        if found != digest:
            message = f"{self._image.registry} sends {found} for {digest} of {self._image.tagged}."
            raise CannotRun(message, next_step=_AGAIN)
        try:
            return parse(form, answer.body)
        except ValueError as error:
            message = f"{self._image.registry} describes {self._image.tagged} otherwise than a registry does: {error}."
            raise CannotRun(message, next_step=_AGAIN) from None

    def nearest(self) -> list[str]:
        """Tags like the image's own, of the nearest builds of llama.cpp below and above its own; the nearest first."""
        own_tag = self._image.tag
        if (build := builds.in_tag(own_tag)) is None:
            return []
        before, _, after = own_tag.partition(build)
        own = builds.number(build)
        # Registries list tags in alphabetical order.
        start = urlencode({"n": _MOST_TAGS, "last": f"{before}b{max(own - _BUILDS_BELOW, 1)}"})
        answer = self.get(f"tags/list?{start}", {})
        try:
            listed = parse(TAGS, answer.body).tags if answer.status == 200 else []
        except ValueError:
            return []
        others = [
            builds.number(found) for tag in listed if (found := builds.in_tag(tag)) and tag == f"{before}{found}{after}"
        ]
        below, above = [one for one in others if one < own], [one for one in others if one > own]
        near = [*([max(below)] if below else []), *([min(above)] if above else [])]
        return [f"{before}b{one}{after}" for one in sorted(near, key=lambda one: abs(one - own))]


def _token(client: GuardedClient, image: ImageReference, answer: Answer) -> str:
    """An anonymous token, from the realm that the registry names."""
    challenge = answer.headers.get("WWW-Authenticate", "")
    parts = {found["key"].lower(): found["value"] for found in _CHALLENGE.finditer(challenge)}
    realm = parts.get("realm", "")
    if not challenge.lower().startswith("bearer ") or origin_of(realm) is None:
        raise _private(image, 401)
    scope = {"scope": f"repository:{image.repository}:pull"} | {
        key: parts[key] for key in ("service", "scope") if key in parts
    }
    where = client.policy.next(answer.address, f"{realm}{'&' if '?' in realm else '?'}{urlencode(scope)}")
    granted = client.get(where, {})
    if granted.status in (401, 403):
        raise _private(image, granted.status)
    if granted.status != 200:
        raise client.unusable(where, f"answers HTTP {granted.status} for a token")
    try:
        document = parse(TOKEN, granted.body)
    except ValueError as error:
        raise client.unusable(where, f"answers without a token ({error})") from None
    token = document.token or document.access_token
    if not token:
        raise client.unusable(where, "answers without a token")
    return token


def _require_found(image: ImageReference, status: int) -> None:
    if status == 404:
        raise Refused(f"{image.registry} has no image {image.repository}:{image.tag}.", next_step=_correct(image))
    if status in (401, 403):
        raise _private(image, status)
    if status == 429:
        raise CannotRun(
            f"{image.registry} limits the rate of requests (HTTP 429).",
            next_step=f"Wait, then: corral lock; or write {image.tagged}@sha256:… into images.yaml",
        )
    if status != 200:
        raise CannotRun(f"{image.registry} answers HTTP {status} for {image.tagged}.", next_step=_AGAIN)


def _correct(image: ImageReference) -> str:
    return f"Correct {image.tagged} in images.yaml"


def _private(image: ImageReference, status: int) -> Refused:
    return Refused(
        f"{image.registry} refuses {image.repository}:{image.tag} (HTTP {status}): there is no such image, or it is "
        "private, and corral has no password for it.",
        next_step=f"Correct the name, or write the digest yourself in images.yaml: {image.tagged}@sha256:…",
    )


def _digest(image: ImageReference, answer: Answer) -> str:
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
    if kind not in (*_INDEXES, *_MANIFESTS):
        raise Refused(
            f"{image.registry} answers for {image.tagged} with {printable(kind) or 'no type'}, "
            "which is no manifest of an image.",
            next_step=_correct(image),
        )
    found = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
    stated = answer.headers.get("Docker-Content-Digest", found)
    if stated != found:
        raise CannotRun(
            f"{image.registry} states that {image.tagged} has the digest {printable(stated)}, and sends {found}.",
            next_step=_AGAIN,
        )
    return found

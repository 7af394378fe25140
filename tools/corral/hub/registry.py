"""Requests the digest of a tag from a container registry: one manifest, never a layer.

The OCI distribution protocol, as far as that takes: a GET of the manifest, and the anonymous token that Docker Hub and
ghcr.io require first.  The clients on PyPI bring a second HTTP library and do not compare the digest with the body.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from urllib.parse import urlencode

from corral.agent.errors import Code
from corral.agent.hub_policy import Budgets, HubPolicy, origin_of, printable
from corral.catalog.image_reference import ImageReference
from corral.errors import CannotRun, CorralError, Refused
from corral.hub.answers import TOKEN, parse
from corral.hub.guarded_http import Answer, GuardedClient, NoAnswer

_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_ACCEPT = {"Accept": ", ".join((*_INDEXES, *_MANIFESTS))}
_CHALLENGE = re.compile(r'(?<![a-z_])(?P<key>[a-z_]{1,20})="(?P<value>[^"]*)"', re.IGNORECASE)
_BUDGETS = Budgets(listing_bytes=4 << 20)  # the protocol's own limit of a manifest
_AGAIN = "Check the network, then: corral lock"


def digest_at_registry(image: ImageReference) -> str:
    """The digest that *image*'s tag has now; of the index of all platforms where the image has several.

    Raises:
        Refused: there is no such image or tag, it is private, or the answer is not a manifest.
        CannotRun: the registry did not answer as a registry does.
    """
    registry = HubPolicy(f"{'http' if image.is_on_loopback else 'https'}://{image.registry}", budgets=_BUDGETS)
    client = GuardedClient(registry, elsewhere=True, unusable=CannotRun, next_step=_AGAIN)
    try:
        manifest = registry.first(f"/v2/{image.repository}/manifests/{image.tag}")
        answer = client.get(manifest, _ACCEPT)
        if answer.status == 401:
            client.policy = replace(registry, token=_token(client, image, answer))
            answer = client.get(manifest, _ACCEPT)
    except NoAnswer as error:
        raise CannotRun(f"The registry {image.registry} does not answer: {error.reason}.", next_step=_AGAIN) from None
    except CorralError as error:
        if error.code is Code.OTHER:
            raise
        raise type(error)(f"{image.tagged}: {error.message}", next_step=_correct(image)) from None  # not of HF_ENDPOINT
    _require_found(image, answer.status)
    return _digest(image, answer)


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

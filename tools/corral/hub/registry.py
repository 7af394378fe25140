"""Requests the digest of a tag from a container registry: one manifest, never a layer.

The OCI distribution protocol, as far as that takes: a GET of the manifest, and the anonymous token that Docker Hub and
ghcr.io require first.  The clients on PyPI bring a second HTTP library and do not compare the digest with the body.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import urlsplit

import httpx2

from corral.catalog.image_reference import ImageReference
from corral.errors import CannotRun, Refused

_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_CHALLENGE = re.compile(r'(?P<key>[a-z_]+)="(?P<value>[^"]*)"', re.IGNORECASE)
_MOST_BYTES = 4 << 20
"""The protocol's own limit of a manifest."""
_TIMEOUT_SECONDS = 30
_AGAIN = "Check the network, then: corral lock"


def digest_at_registry(image: ImageReference) -> str:
    """The digest that *image*'s tag has now; of the index of all platforms where the image has several.

    Raises:
        Refused: there is no such image or tag, it is private, or the answer is not a manifest.
        CannotRun: the registry did not answer as a registry does.
    """
    scheme = "http" if image.is_on_loopback else "https"
    url = f"{scheme}://{image.registry}/v2/{image.repository}/manifests/{image.tag}"
    try:
        with httpx2.Client(follow_redirects=True, timeout=_TIMEOUT_SECONDS) as client:
            answer, body = _get(client, url, {})
            if answer.status_code == 401:
                answer, body = _get(client, url, {"Authorization": f"Bearer {_token(client, image, answer)}"})
    except (httpx2.HTTPError, OSError) as error:
        raise CannotRun(
            f"The registry {image.registry} does not answer: {str(error) or type(error).__name__}.", next_step=_AGAIN
        ) from None
    if answer.url.scheme != scheme and scheme == "https":
        raise Refused(f"{image.registry} leads to {answer.url}: a digest is only taken over https.")
    _require_found(image, answer.status_code)
    return _digest(image, answer, body)


def _get(client: httpx2.Client, url: str, headers: dict[str, str]) -> tuple[httpx2.Response, bytes]:
    """The answer and its body, of which more than a manifest is not read."""
    accept = {"Accept": ", ".join((*_INDEXES, *_MANIFESTS)), "Accept-Encoding": "identity"}
    with client.stream("GET", url, headers={**accept, **headers}) as answer:
        return answer, next(answer.iter_bytes(_MOST_BYTES + 1), b"")


def _token(client: httpx2.Client, image: ImageReference, answer: httpx2.Response) -> str:
    """An anonymous token, from the realm that the registry names."""
    challenge = answer.headers.get("WWW-Authenticate", "")
    parts = {found["key"].lower(): found["value"] for found in _CHALLENGE.finditer(challenge)}
    realm = parts.pop("realm", "")
    where = urlsplit(realm)
    if not challenge.lower().startswith("bearer ") or not where.hostname:
        raise _private(image, 401)
    if where.scheme != "https" and not (where.scheme == "http" and image.is_on_loopback):
        raise Refused(f"{image.registry} names {realm} for a token: that is not https.")
    scope = {key: parts[key] for key in ("service", "scope") if key in parts}
    granted = client.get(realm, params={"scope": f"repository:{image.repository}:pull", **scope})
    if granted.status_code in (401, 403):
        raise _private(image, granted.status_code)
    if granted.status_code != 200:
        raise CannotRun(f"{where.hostname} answers HTTP {granted.status_code} for a token.", next_step=_AGAIN)
    try:
        document = granted.json()
        token = document.get("token") or document.get("access_token")
    except (ValueError, AttributeError):
        token = None
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise CannotRun(f"{where.hostname} answers without a token.", next_step=_AGAIN)
    return token


def _require_found(image: ImageReference, status: int) -> None:
    if status == 404:
        correction = f"Correct the tag of {image.tagged} in images.yaml"
        raise Refused(f"{image.registry} has no image {image.repository}:{image.tag}.", next_step=correction)
    if status in (401, 403):
        raise _private(image, status)
    if status == 429:
        raise CannotRun(
            f"{image.registry} limits the rate of requests (HTTP 429).",
            next_step=f"Wait, then: corral lock; or write {image.tagged}@sha256:… into images.yaml",
        )
    if status != 200:
        raise CannotRun(f"{image.registry} answers HTTP {status} for {image.tagged}.", next_step=_AGAIN)


def _private(image: ImageReference, status: int) -> Refused:
    return Refused(
        f"{image.registry} refuses {image.repository}:{image.tag} (HTTP {status}): there is no such image, or it is "
        "private, and corral has no password for it.",
        next_step=f"Correct the name, or write the digest yourself in images.yaml: {image.tagged}@sha256:…",
    )


def _digest(image: ImageReference, answer: httpx2.Response, body: bytes) -> str:
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
    if kind not in (*_INDEXES, *_MANIFESTS) or len(body) > _MOST_BYTES:
        raise Refused(
            f"{image.registry} answers for {image.tagged} with {kind or 'no type'}, which is no manifest of an image.",
            next_step=f"Correct {image.tagged} in images.yaml",
        )
    found = f"sha256:{hashlib.sha256(body).hexdigest()}"
    stated = answer.headers.get("Docker-Content-Digest", found)
    if stated != found:
        raise CannotRun(
            f"{image.registry} states that {image.tagged} has the digest {stated}, and sends {found}.", next_step=_AGAIN
        )
    return found

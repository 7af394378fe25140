"""The body of a request: JSON with one reading, a model that the client may use, and nothing for the engine to fetch.

A body that passes is forwarded byte for byte.  Parsers differ in names that stand twice and in text that is no JSON,
and both are refused here; what remains has the same value for this parser, llama-swap's and the engine's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import Any

from . import strict_json
from .config import Client
from .refusals import Refusal

_TEXT_LIMIT = 16 << 20  # besides images: more than any context holds
_DEPTH = 100
_OBJECTS, _VALUES = 100_000, 1_000_000
_SMALL = 256 << 10  # cannot hold more than it may
_PAYLOADS = 1000
_PAYLOAD, _KEPT = 1024, 64

# Members whose text an engine may take for an address: image_url, video_url, file_data, input_audio.data, …
_ADDRESS = re.compile(r"(?i).*ur[il]|(.*_)?(data|image|images|audio|video|media|file)")
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]{0,30}:")
# No @ and no \: parsers differ in the host of an address that has them.
_HTTP = re.compile(r"https?://([a-z0-9.-]+(?::[0-9]{1,5})?)(?:/[!#-?A-\[\]-~]*)?")

_CALLS = ("messages", None, "content", None)
"""Where the calls of tools are in a request to /v1/messages.  The engine hands their ``input`` on as text, in which the
page that a tool is to open may stand; an ``input`` elsewhere is the conversation of /v1/responses."""


def read_document(body: bytes | bytearray) -> dict[str, Any]:
    """The document in *body*; of long ``data:`` addresses only their beginnings.

    Raises:
        Refusal: it is no JSON that every parser reads alike, no object, or too much for one request.
    """
    text = _without_payloads(body)
    if len(text) > _TEXT_LIMIT or (len(text) > _SMALL and _has_too_many_values(text)):
        rule = f"Besides images, a request may have {_TEXT_LIMIT >> 20} MiB, {_OBJECTS} lists and {_VALUES} values."
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body-too-large", rule)
    try:
        document = strict_json.loads(text.decode())
    except UnicodeDecodeError:
        raise _not_json("no UTF-8") from None
    except ValueError as error:
        raise _not_json(str(error)) from None
    if not isinstance(document, dict):
        raise _not_json("no object")
    return document


def require_local_media(document: Any, hosts: Collection[str]) -> None:
    """Raise a Refusal when the engine would fetch something for *document* that is not on one of *hosts*."""
    left: list[tuple[Any, str, int, int]] = [(document, "", 1, 0)]
    while left:
        value, name, depth, at = left.pop()
        if isinstance(value, str):
            if _SCHEME.match(value) and _ADDRESS.fullmatch(name) and not _is_permitted(value, hosts):
                also = f", or on {' or '.join(sorted(hosts))}" if hosts else ""
                rule = f"An image, a sound or a video must be in the request, as data:…;base64,…{also}."
                raise Refusal(HTTPStatus.BAD_REQUEST, "remote-media", rule)
        elif isinstance(value, (dict, list)):
            if depth > _DEPTH:
                raise _not_json("nested too deep")
            if isinstance(value, list):
                left += [(one, name, depth + 1, _step(at, None)) for one in value]
            else:
                unused = "input" if at == len(_CALLS) and value.get("type") == "tool_use" else None
                left += [(one, name, depth + 1, _step(at, name)) for name, one in value.items() if name != unused]


def _step(at: int, name: str | None) -> int:
    """How many steps of ``_CALLS`` lead to a member *name* of what *at* steps lead to; None is an item of a list."""
    return at + 1 if 0 <= at < len(_CALLS) and _CALLS[at] == name else -1


def model_of(document: Mapping[str, Any], model_named: Callable[[str], str | None], client: Client) -> str:
    """The id of the model that *document* names; an adapter's is that of its model.

    Raises:
        Refusal: it names none that *model_named* knows, or none that *client* may use; both have the same answer.
    """
    if "lora" in document:
        rule = (
            'An adapter is chosen by its name, "model": "MODEL:ADAPTER": the engine passes over numbers that it lacks.'
        )
        raise Refusal(HTTPStatus.BAD_REQUEST, "lora-by-number", rule)
    name = document.get("model")
    if not isinstance(name, str):
        raise Refusal(HTTPStatus.BAD_REQUEST, "model-missing", 'The body must name a model: "model": "ID".')
    model = model_named(name)
    if model is None or (client.models is not None and model not in client.models):
        rule = "There is no such model, or this key may not use it: GET /v1/models lists those that it may use."
        raise Refusal(HTTPStatus.NOT_FOUND, "model-not-found", rule)
    return model


def _is_permitted(text: str, hosts: Collection[str]) -> bool:
    found = _HTTP.fullmatch(text)
    return text.startswith("data:") or (found is not None and found[1] in hosts)


def _without_payloads(body: bytes | bytearray) -> bytes:
    """*body* with only the beginnings of its long ``data:`` addresses, of which the rest changes no check.

    An address with a backslash stays whole: then the quotation mark that ends it here may be an escaped one.
    """
    parts, kept, at = [], 0, 0
    for _ in range(_PAYLOADS):
        at = body.find(b'"data:', at)
        end = body.find(b'"', at + 1)
        if at < 0 or end < 0:
            break
        if end - at > _PAYLOAD and body.find(b"\\", at, end) < 0:
            parts.append(body[kept : at + _KEPT])
            kept = end
        at = end
    return b"".join([*parts, body[kept:]])


def _has_too_many_values(text: bytes) -> bool:
    return text.count(b"{") + text.count(b"[") > _OBJECTS or text.count(b",") > _VALUES


def _not_json(reason: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, "body-not-json", f"The body is not used: {reason}.")

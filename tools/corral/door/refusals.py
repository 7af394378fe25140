"""Requests that llama-swap does not get, and the answer to each: a status, a code for programs, a sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus

_TYPES = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}


class Refusal(Exception):
    """The answer to a request that ends here.

    Args:
        status: of the HTTP answer.
        code: the reason, for programs; the access log has it.
        message: the reason in a sentence; it quotes nothing of another client, and no text that came from outside.
        headers: further headers of the answer.
        fields: further members of the error, beside message, type and code.
    """

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self._headers, self._fields = headers or {}, fields or {}

    def answer(self) -> bytes:
        """The whole answer, after which the connection ends."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        error = {"message": self.message, "type": kind, "code": self.code, **self._fields}
        return json_answer(self.status, {"error": error}, self._headers)


def json_answer(status: HTTPStatus, document: object, headers: Mapping[str, str] | None = None) -> bytes:
    """The answer with *document* as its body, after which the connection ends."""
    return answer(status, "application/json", json.dumps(document).encode(), headers)


def answer(status: HTTPStatus, kind: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """The answer with *body*, of the content type *kind*, after which the connection ends."""
    return beginning(status, kind, {"Content-Length": str(len(body)), **(headers or {})}) + body


def beginning(status: HTTPStatus, kind: str, headers: Mapping[str, str] | None = None) -> bytes:
    """The head of an answer of the content type *kind*, which the end of the connection ends where no length does."""
    fields = {"Content-Type": kind, "Connection": "close", **(headers or {})}
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def malformed(rule: str) -> Refusal:
    """The request is no HTTP/1.1 as the guard reads it."""
    return Refusal(HTTPStatus.BAD_REQUEST, "malformed-request", rule)


def late(part: str) -> Refusal:
    """The client did not send the *part* of its request in time."""
    return Refusal(HTTPStatus.REQUEST_TIMEOUT, "request-timeout", f"The {part} of the request did not come in time.")


def silent() -> Refusal:
    """llama-swap has the request and does not answer."""
    return Refusal(HTTPStatus.GATEWAY_TIMEOUT, "llama-swap-silent", "llama-swap does not answer. See: corral logs")


def down() -> Refusal:
    """llama-swap cannot be reached."""
    return Refusal(HTTPStatus.BAD_GATEWAY, "llama-swap-down", "llama-swap cannot be reached. See: corral status")


def stopping(retry_after_s: int) -> Refusal:
    """llama-swap cannot be reached, because it is being stopped together with the guard."""
    rule = "This server is being stopped, and no model has answered the request."
    headers = {"Retry-After": str(retry_after_s)}
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "stopping", rule, headers=headers)

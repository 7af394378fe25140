"""huggingface_hub behind a guard: it knows the hub's addresses, pages and refusals, and receives only what was checked.

The library has no token: requests get it after their origin was compared.  Of a response it receives the checked fields
and no text, so that it neither fails on one nor prints one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
from huggingface_hub import HfApi, constants, hf_hub_url, is_offline_mode, set_client_factory
from huggingface_hub.hf_api import ModelInfo, RepoFile
from huggingface_hub.utils._http import default_client_factory
from pydantic import TypeAdapter

from corral.agent.hub_policy import HubPolicy, shown
from corral.errors import HubUnavailable, HubUnreachable
from corral.hub.answers import PAGE, PARTS, REPORT, parse
from corral.hub.guarded_http import REDIRECTS, Answer, GuardedClient, NoAnswer

# Else the library sends one more request, for a list of programs of which its User-Agent would name the running one.
constants.HF_HUB_DISABLE_TELEMETRY = True

CHECK_HUB = "Check the network and HF_ENDPOINT, then: corral lock"

_MAY_PASS = (408, 425, 429)
_ERROR_FIELDS = ("X-Error-Code", "X-Error-Message")  # by which the library tells a gated repository from a missing one
_FILE_FIELDS = ("X-Linked-Etag", "ETag", "X-Linked-Size", "Content-Length")
_SIZE = re.compile(r"[0-9]{1,18}")
_NEXT_PAGE = re.compile(r'<([^<>]*)>;[^,<]*\brel="?next\b')


class HubApi:
    """The API of one hub, for the model that is resolved: all requests share the budgets of *policy*.

    Its methods raise what ``GuardedClient.get`` does, ``HubUnavailable`` for an answer that is none, and the library's
    own errors for what the hub refuses.
    """

    def __init__(self, policy: HubPolicy) -> None:
        self._policy = policy
        self._api = HfApi(endpoint=policy.endpoint, token=False)
        self._transport = _Transport(policy)

    def report(self, repo: str, revision: str) -> ModelInfo:
        """The commit that *revision* of *repo* is, and its licence."""
        with self._expecting(REPORT):
            return self._api.model_info(repo, revision=revision)

    def files(self, repo: str, commit: str, *, of_vllm: bool = False) -> dict[str, RepoFile]:
        """The GGUF files of *repo* at *commit* by path; *of_vllm*: those that a model on vLLM can have."""
        found: dict[str, RepoFile] = {}
        with self._expecting(PARTS if of_vllm else PAGE):
            for file in self._api.list_repo_tree(repo, recursive=not of_vllm, revision=commit):
                assert isinstance(file, RepoFile)
                if file.path in found:
                    raise HubUnavailable(f"The hub lists {file.path} of {repo} twice.", next_step=CHECK_HUB)
                found[file.path] = file
        return found

    def size_and_sha256(self, repo: str, commit: str, path: str) -> tuple[int | None, str | None]:
        """What the HEAD of a file says, where the listing has no LFS data; the sha256 may be another kind of hash."""
        url = hf_hub_url(repo, path, revision=commit, endpoint=self._policy.endpoint)
        with self._expecting(None):
            head = self._api.get_hf_file_metadata(url=url)
        return head.size, head.etag

    @contextmanager
    def _expecting(self, answer: TypeAdapter[Any] | None) -> Iterator[None]:
        """Let the library use this hub, for *answer* alone."""
        self._transport.expected = answer
        set_client_factory(lambda: httpx2.Client(transport=self._transport, trust_env=False))
        try:
            yield
        finally:
            set_client_factory(default_client_factory)


class _Transport(httpx2.BaseTransport):
    """What the library sends goes through a ``GuardedClient``; it receives an ``expected`` answer, or heads alone."""

    def __init__(self, policy: HubPolicy) -> None:
        self.expected: TypeAdapter[Any] | None = None
        self._policy = policy
        self._client = GuardedClient(policy, elsewhere=False, unusable=HubUnavailable, next_step=CHECK_HUB)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer to *request*; of the library's own header fields none is sent.

        What may pass is an error at once: the library would wait for as long as the hub says, and log what it says.
        """
        if is_offline_mode():
            raise HubUnavailable("HF_HUB_OFFLINE forbids requests to the hub.", next_step="unset HF_HUB_OFFLINE")
        address = self._policy.next(self._policy.first(), str(request.url))
        is_head = request.method == "HEAD"
        try:
            answer = self._client.send("HEAD", address, {}) if is_head else self._client.get(address, {})
        except NoAnswer as error:
            if error.unreachable:
                raise HubUnreachable(self._policy.endpoint, error.reason) from None
            raise HubUnavailable(f"{self._policy.endpoint}: {error.reason}.", next_step=CHECK_HUB) from None
        if answer.status in _MAY_PASS or answer.status >= 500:
            message = f"{shown(address.url)} answers HTTP {answer.status}."
            raise HubUnavailable(message, next_step="Try again in a minute: corral lock")
        if answer.status >= 400:
            return httpx2.Response(answer.status, headers=_passed_on(answer, _ERROR_FIELDS), request=request)
        return self._metadata(answer, request) if is_head else self._json(answer, request)

    def _metadata(self, answer: Answer, request: httpx2.Request) -> httpx2.Response:
        """The head of a file, which is that of the redirect where a file's bytes are at another origin."""
        headers = _passed_on(answer, _FILE_FIELDS)
        for name in ("X-Linked-Size", "Content-Length"):
            if not _SIZE.fullmatch(headers.get(name, "0")):
                raise self._client.unusable(answer.address, "answers with a size that is none")
        location = answer.headers.get("Location")
        if answer.status in REDIRECTS and location:
            target = self._policy.next(answer.address, location)
            headers |= {"Location": target.url} if target.trusted else {}
        return httpx2.Response(answer.status, headers=headers, request=request)

    def _json(self, answer: Answer, request: httpx2.Request) -> httpx2.Response:
        """What is ``expected``, and the link to the next page."""
        if answer.status != 200 or self.expected is None:
            raise self._client.unusable(answer.address, f"answers HTTP {answer.status}")
        try:
            checked = parse(self.expected, answer.body)
        except ValueError as error:
            raise self._client.unusable(answer.address, f"does not answer as a hub does ({error})") from None
        headers = {}
        if found := _NEXT_PAGE.search(answer.headers.get("Link", "")):
            headers["Link"] = f'<{self._policy.next(answer.address, found[1]).url}>; rel="next"'
        body = self.expected.dump_json(checked, by_alias=True)
        return httpx2.Response(200, headers=headers, content=body, request=request)


def _passed_on(answer: Answer, names: tuple[str, ...]) -> dict[str, str]:
    values = {name: answer.headers.get(name, "") for name in names}
    return {name: value for name, value in values.items() if value and value.isascii() and value.isprintable()}

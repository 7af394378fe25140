"""Every method and path that leads to llama-swap, and who may use it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import get_args

from .config import Role, Task
from .refusals import Refusal, malformed

# No percent-encoding: the ids of models need none, and then a path has one reading.
_NORMAL = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,=:@-]+)+/?|/")
_QUERY = re.compile(r"[A-Za-z0-9._~!$&'()*+,=:@/?%-]*")
_DOTS = {".", ".."}


class Access(Enum):
    """Who may use a path."""

    EVERYBODY = auto()
    CLIENT = auto()
    MONITOR = auto()
    STEWARD = auto()
    OPERATOR = auto()

    def permits(self, role: Role) -> bool:
        """Whether a client of *role* may use it."""
        return role in _ROLES[self]


_ROLES: dict[Access, tuple[Role, ...]] = {
    Access.EVERYBODY: get_args(Role),
    Access.CLIENT: get_args(Role),
    Access.MONITOR: ("monitor", "steward", "operator"),
    Access.STEWARD: ("steward", "operator"),
    Access.OPERATOR: ("operator",),
}


@dataclass(frozen=True)
class Route:
    """One line of the table.

    Attributes:
        methods: that it has.
        path: the whole path, or its beginning when it ends with ``/*``.
        access: who may use it.
        task: of the models that answer it, which the body names and which may have to be loaded; None: no model does.
        is_quick: llama-swap answers at once, or does not answer.
    """

    methods: tuple[str, ...]
    path: str
    access: Access
    task: Task | None = None
    is_quick: bool = False

    @property
    def is_inference(self) -> bool:
        """Whether the body names a model, which may have to be loaded."""
        return self.task is not None

    def matches(self, path: str) -> bool:
        """Whether it is the line of *path*."""
        return path.startswith(self.path[:-1]) if self.path.endswith("/*") else path == self.path


# llama-swap has more: audio, image generation and `/v/…` are left out, because no model of a catalog answers them.
_INFERENCE: dict[Task, tuple[str, ...]] = {  # of each, the first is the usual one
    "chat": (
        *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
        *("/completion", "/infill"),
    ),
    "embedding": ("/v1/embeddings",),
    "rerank": ("/v1/rerank", "/v1/reranking", "/rerank", "/reranking"),
}
ENGINE_METRICS, ENGINE_PROBE = "/engine-metrics/", "/engine-probe/"
"""Before the id of a model: the guard asks the engine itself, because `/upstream/…` loads a model."""
ENGINE_YIELD = "/engine-yield/"
"""Before the id of a model: the guard has it unloaded, if it serves no request; llama-swap's own path cuts requests."""
UPSTREAM = "/upstream/"
"""Before the id of a model, and a path of its engine."""
_OF_A_MODEL = (UPSTREAM, ENGINE_METRICS, ENGINE_PROBE, ENGINE_YIELD, "/logs/stream/", "/api/models/unload/")
PAUSE = "/pause"
"""The guard's own: as long as the answer of a POST is read, new requests of models wait; those under way end.
A GET has whether there is such a pause."""
MODEL_CHANGES = "/model-changes"
"""The guard's own: each load and each unload, as ``changes`` describes them."""
# The first line that matches.
ROUTES = (
    *(Route(("POST",), path, Access.CLIENT, task) for task, paths in _INFERENCE.items() for path in paths),
    Route(("GET",), "/health", Access.EVERYBODY, is_quick=True),
    Route(("GET",), "/v1/models", Access.CLIENT, is_quick=True),
    Route(("GET",), "/metrics", Access.CLIENT, is_quick=True),
    Route(("GET",), "/running", Access.MONITOR, is_quick=True),
    Route(("GET",), "/api/metrics/activity", Access.MONITOR, is_quick=True),
    Route(("GET",), f"{ENGINE_METRICS}*", Access.MONITOR),
    Route(("POST",), f"{ENGINE_PROBE}*", Access.MONITOR),
    Route(("POST",), f"{ENGINE_YIELD}*", Access.STEWARD),
    Route(("GET",), MODEL_CHANGES, Access.MONITOR),
    Route(("GET", "POST"), PAUSE, Access.OPERATOR),
    Route(("GET",), "/unload", Access.OPERATOR),
    Route(("GET",), "/logs", Access.OPERATOR),
    Route(("GET",), "/logs/stream", Access.OPERATOR),
    Route(("GET",), "/logs/stream/*", Access.OPERATOR),
    Route(("GET",), "/ui", Access.OPERATOR),
    Route(("GET",), "/ui/*", Access.OPERATOR),
    Route(("GET", "POST"), "/api/*", Access.OPERATOR),
    Route(("GET", "POST"), f"{UPSTREAM}*", Access.OPERATOR),
)


def check_target(target: str) -> None:
    """Raise a Refusal when two readers could find two paths, or two queries, in a request's *target*."""
    path, _, query = target.partition("?")
    if not _NORMAL.fullmatch(path) or _DOTS.intersection(path.split("/")):
        raise malformed("The path is not in normal form: /name/name, without //, /./, /../, \\, ; and %.")
    if not _QUERY.fullmatch(query):
        raise malformed("The query has a character that must be percent-encoded.")


def find_route(path: str) -> Route | None:
    """The line of *path*; None when it leads nowhere."""
    return next((route for route in ROUTES if route.matches(path)), None)


def model_in(path: str, models: Mapping[str, str]) -> str:
    """The id of the model that *path* names, of *models* by id or alias; empty: it names none."""
    prefix = next((one for one in _OF_A_MODEL if path.startswith(one)), "")
    place = f"{path.removeprefix(prefix)}/" if prefix else ""
    return next((model for name, model in models.items() if place.startswith(f"{name}/")), "")


def name_in(path: str) -> str:
    """The first name behind a prefix that is before the id of a model; empty: *path* has no such prefix."""
    prefix = next((one for one in _OF_A_MODEL if path.startswith(one)), path)
    return path.removeprefix(prefix).partition("/")[0]


def check_task(route: Route, task: Task) -> None:
    """Raise a Refusal when the models of *task* have no answer on *route*: for them it is not there (404, as OpenAI).

    The engine may have one all the same: of weights for rankings it gives vectors with status 200, of an embedding
    model a chat (docs/architecture/decisions/0022-task-draft-and-adapters.md).
    """
    if route.task != task:
        rule = f"The task of this model is {task}; its path is {_INFERENCE[task][0]}."
        raise Refusal(HTTPStatus.NOT_FOUND, "wrong-task", rule, fields={"task": task, "path": _INFERENCE[task][0]})


def check_method(route: Route | None, method: str) -> Route:
    """The *route*, if there is one and it has *method*; else raise a Refusal."""
    if route is None:
        raise Refusal(HTTPStatus.NOT_FOUND, "no-such-path", "This path is not served.")
    if method not in route.methods:
        allowed = ", ".join(route.methods)
        rule = f"This path has the methods: {allowed}."
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "no-such-method", rule, headers={"Allow": allowed})
    return route

"""The one seam to a Kubernetes API server: a kubeconfig and a context in, plain JSON out, and every failure in words.

Objects stay as the API gives them, so that a fixture is what ``kubectl get -o json`` prints.  Importing ``kubernetes``
takes half a second: it happens in ``connect``, never while this module is imported.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlencode

from corral.errors import CannotRun, Refused

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object as the API gives it."""

_CONNECT_LIMIT_S = 5.0
_READ_LIMIT_S = 10.0
_DEFAULT_KUBECONFIG = "~/.kube/config"


class NotThere(CannotRun):
    """The API server has no such object (404)."""


class Forbidden(Refused):
    """The user of the context may not do that (403)."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that answers.

    Attributes:
        api: the client; its configuration carries the credentials.
        context: the name in the kubeconfig.
        server: the address of the API server.
        version: of Kubernetes, such as ``v1.34.4``.
        kubeconfig: as it was named by the operator; None for the default one.
    """

    api: ApiClient
    context: str
    server: str
    version: str
    kubeconfig: Path | None = None

    def get(self, path: str, **query: str) -> Object:
        """The object or list at *path* (``/api/v1/…``).

        Raises:
            NotThere: there is no such object.
            Forbidden: the user may not read it.
            CannotRun: the API server does not answer, or not with JSON.
        """
        return _object(_ask(self.api, self.context, self.kubeconfig, path, query), self.server + path)

    def items(self, path: str, **query: str) -> tuple[Object, ...]:
        """The items of the list at *path*.

        Raises:
            Forbidden, CannotRun: as ``get``.
        """
        return tuple(self.get(path, **query).get("items") or ())

    def text(self, path: str, **query: str) -> str:
        """What stands at *path* as text: a container's log.

        Raises:
            NotThere, Forbidden, CannotRun: as ``get``.
        """
        return _ask(self.api, self.context, self.kubeconfig, path, query).decode(errors="replace")

    def kubectl(self, *words: str, namespace: str = "") -> str:
        """``kubectl`` *words* for this cluster, to be typed as it is."""
        return kubectl(self.context, self.kubeconfig, *words, namespace=namespace)


def kubectl(context: str, kubeconfig: Path | None, *words: str, namespace: str = "") -> str:
    """``kubectl`` *words* for *context*, to be typed as it is."""
    named = ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
    named += ["--context", context] if context else []
    return shlex.join(["kubectl", *named, *(["-n", namespace] if namespace else []), *words])


def connect(kubeconfig: Path | None = None, context: str | None = None) -> Cluster:
    """The cluster of *context*, which has answered once.

    Args:
        kubeconfig: the file; None: what ``KUBECONFIG`` names, else ``~/.kube/config``.
        context: a name in it; None: its current one.

    Raises:
        Refused: there is no such file or context, or the credentials are not accepted.
        CannotRun: the API server cannot be reached, or its certificate is not trusted.
    """
    files = _files(kubeconfig)
    shown = ":".join(str(file) for file in files)
    from kubernetes.client import ApiClient, Configuration
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    with _complaints() as complaints, _readable(shown):
        merged = KubeConfigMerger(os.pathsep.join(str(file) for file in files)).config
        chosen = _choose(merged.value, context, shown, kubeconfig)
        loader = KubeConfigLoader(merged, active_context=chosen)
        configuration = Configuration()
        loader.load_and_set(configuration)
    if complaints:  # the credentials' program failed: what it said is worth more than the 401 that would follow
        raise CannotRun(
            f"The credentials of context {chosen} ({shown}) cannot be had: {' '.join(complaints)}",
            next_step=kubectl(chosen, kubeconfig, "auth", "whoami"),
        )
    # One answer at once is worth more than three attempts, of which urllib3 would warn.
    configuration.retries = False
    api = ApiClient(configuration)
    found = _object(_ask(api, chosen, kubeconfig, "/version", {}), configuration.host + "/version")
    return Cluster(api, chosen, configuration.host, str(found.get("gitVersion", "unknown")), kubeconfig)


def _files(kubeconfig: Path | None) -> list[Path]:
    named = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG", "") or _DEFAULT_KUBECONFIG
    files = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
    there = [file for file in files if file.is_file()]
    if not there:
        raise Refused(
            f"There is no kubeconfig {named}.",
            next_step="Name it with --kubeconfig FILE, or set KUBECONFIG",
        )
    return there


def _choose(config: Object, context: str | None, shown: str, kubeconfig: Path | None) -> str:
    names = [str(one["name"]) for one in _plain(config.get("contexts") or [])]
    have = f"it has: {', '.join(names)}" if names else "it has none"
    if context is None:
        current = str(config.get("current-context") or "")
        if not current:
            raise Refused(f"{shown} names no current context; {have}.", next_step="Name one with: --context NAME")
        context = current
    if context not in names:
        raise Refused(
            f"{shown} has no context {context}; {have}.",
            next_step=kubectl("", kubeconfig, "config", "get-contexts"),
        )
    return context


def _plain(nodes: list[Any]) -> list[Object]:
    """The client wraps what it has merged."""
    return [getattr(node, "value", node) for node in nodes]


@contextmanager
def _readable(shown: str) -> Iterator[None]:
    import yaml
    from kubernetes.config import ConfigException

    wrong = "Compare it with: kubectl config view"
    try:
        yield
    except ConfigException as error:
        raise Refused(f"{shown} is no kubeconfig that can be used: {_words(error)}.", next_step=wrong) from None
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, UnicodeDecodeError, ValueError) as error:
        raise Refused(f"{shown} is no kubeconfig: {_words(error)}.", next_step=wrong) from None
    except OSError as error:
        raise Refused(f"{shown} cannot be read: {error.strerror or error}.", next_step=f"ls -l {shown}") from None


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """What the client logs while it loads credentials, where it should raise."""
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage().strip())

    keep, root = Keep(level=logging.ERROR), logging.getLogger()
    root.addHandler(keep)
    try:
        yield said
    finally:
        root.removeHandler(keep)


def _ask(api: ApiClient, context: str, kubeconfig: Path | None, path: str, query: dict[str, str]) -> bytes:
    import urllib3
    from kubernetes.client.exceptions import ApiException

    server = str(api.configuration.host)
    headers = {"Accept": "application/json, */*"}
    api.update_params_for_auth(headers, [], ["BearerToken"], path, "GET", None)
    url = f"{server}{path}{'?' + urlencode(query) if query else ''}"
    here = kubectl(context, kubeconfig, "cluster-info")
    try:
        answer = api.call_api("GET", url, headers, _request_timeout=(_CONNECT_LIMIT_S, _READ_LIMIT_S))
        body: bytes = answer.read()
    except (ApiException, urllib3.exceptions.SSLError) as error:  # the client turns what TLS says into one of its own
        said = " ".join(str(getattr(error, "reason", "") or error).split()).removeprefix("SSLError ")
        raise CannotRun(
            f"There is no trusted connection to {server} (context {context}): {said}.", next_step=here
        ) from (None)
    except urllib3.exceptions.HTTPError as error:
        raise CannotRun(
            f"The API server {server} of context {context} does not answer: {_reason(error)}.", next_step=here
        ) from None
    if answer.status != 200:
        raise _refusal(answer.status, body, server, path, lambda *words: kubectl(context, kubeconfig, *words))
    return body


def _refusal(
    status: int, body: bytes, server: str, path: str, command: Callable[..., str]
) -> NotThere | Forbidden | Refused | CannotRun:
    try:
        said = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        said = body[:200].decode(errors="replace").strip() or "it says no more"
    if status == 401:
        return Refused(
            f"The API server {server} does not accept the credentials (401): {said}. They are wrong, or have expired.",
            next_step=command("auth", "whoami"),
        )
    if status == 403:  # its own words name the user, the verb, the resource and the namespace
        return Forbidden(
            f"The API server {server} refuses (403): {said}.", next_step=command("auth", "can-i", "--list")
        )
    if status == 404:
        return NotThere(f"{server}{path} does not exist: {said}.", next_step=command("get", "namespaces"))
    return CannotRun(
        f"The API server {server} answered {status} for {path}: {said}.", next_step=command("get", "nodes")
    )


def _object(body: bytes, where: str) -> Object:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CannotRun(
            f"{where} does not answer as Kubernetes does: {body[:100]!r}.", next_step="kubectl cluster-info"
        )
    return found


def _reason(error: Exception) -> str:
    """What went wrong, without urllib3's objects around it: ``[Errno 111] Connection refused``."""
    words = str(error) or type(error).__name__
    return words.rpartition("object at 0x")[2].partition(">: ")[2] or words.rpartition("): ")[2] or words


def _words(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__

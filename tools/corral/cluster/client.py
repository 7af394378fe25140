"""The one seam to a Kubernetes API server: a kubeconfig and a context in, plain JSON out, and every failure in words.

Objects stay as the API gives them, so that a fixture is what ``kubectl get -o json`` prints.  Importing ``kubernetes``
takes half a second: only ``connect`` does it, never the import of this module.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
from dataclasses import dataclass, replace
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlencode

from corral.errors import CannotRun, CorralError, Refused

if TYPE_CHECKING:
    from kubernetes.client import ApiClient, Configuration

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object as the API gives it."""

_CONNECT_LIMIT_S = 5.0
_READ_LIMIT_S = 10.0
_DEFAULT_KUBECONFIG = "~/.kube/config"


class NotFound(CannotRun):
    """The API server has no such object (404)."""


class Conflict(CannotRun):
    """The object was changed since it was read, or exists already (409)."""


class Forbidden(Refused):
    """The user of the context may not do that (403)."""


# How the API server refuses: status → error, sentence and kubectl command; of a 403 the message names the user, the
# verb, the resource and the namespace.
_REFUSALS: dict[int, tuple[type[CorralError], str, tuple[str, ...]]] = {
    401: (
        Refused,
        "The API server {server} does not accept the credentials (401): {message}. They are wrong, or have expired.",
        ("auth", "whoami"),
    ),
    403: (Forbidden, "The API server {server} refuses (403): {message}.", ("auth", "can-i", "--list")),
    409: (Conflict, "The API server {server} refuses {path} (409): {message}.", ("get", "events")),
    404: (NotFound, "{server}{path} does not exist: {message}.", ("get", "namespaces")),
}
_OTHER = (CannotRun, "The API server {server} returned {status} for {path}: {message}.", ("get", "nodes"))


@dataclass(frozen=True)
class Cluster:
    """A cluster whose API server responds.

    Attributes:
        api: the client; its configuration carries the credentials.
        context: the name in the kubeconfig.
        kubeconfig: as the operator named it; None for the default one.
        version: of Kubernetes, such as ``v1.34.4``.
    """

    api: ApiClient
    context: str
    kubeconfig: Path | None
    version: str = "unknown"

    @property
    def server(self) -> str:
        """The address of the API server."""
        return str(self.api.configuration.host)

    def get(self, path: str, **query: str) -> Object:
        """The object or list at *path* (``/api/v1/…``).

        Raises:
            NotFound: there is no such object.
            Forbidden: the user may not read it.
            CannotRun: the API server does not respond, or not with JSON.
        """
        return self._object(path, self._call("GET", path, query))

    def create(self, path: str, one: Object) -> Object:
        """Make *one* in the list at *path*; what was made.

        Raises:
            Conflict: it exists.
            NotFound: its namespace does not.
            Forbidden, CannotRun: as ``get``.
        """
        return self._object(path, self._call("POST", path, {}, one))

    def replace(self, path: str, one: Object) -> Object:
        """Put *one* in the place of the object at *path*; what is there now.

        Raises:
            Conflict: that was changed since the version that *one* names.
            NotFound, Forbidden, CannotRun: as ``get``.
        """
        return self._object(path, self._call("PUT", path, {}, one))

    def patch(self, path: str, change: Object) -> Object:
        """Merge *change* into the object at *path* (RFC 7386); what is there now.

        Raises:
            NotFound, Forbidden, CannotRun: as ``get``.
        """
        return self._object(path, self._call("PATCH", path, {}, change))

    def delete(self, one: Object, path: str) -> None:
        """Delete *one*, which was read at *path*; what it owns is deleted in the background.

        Raises:
            Conflict: it was changed since it was read.
            NotFound, Forbidden, CannotRun: as ``get``.
        """
        same = {key: one["metadata"][key] for key in ("uid", "resourceVersion")}
        self._call("DELETE", path, {}, {"propagationPolicy": "Background", "preconditions": same})

    def _object(self, path: str, body: bytes) -> Object:
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise CannotRun(
                f"{self.server}{path} returned no Kubernetes object: {body[:100]!r}.",
                next_step=self.kubectl("cluster-info"),
            )
        return found

    def items(self, path: str, **query: str) -> tuple[Object, ...]:
        """The items of the list at *path*.

        Raises:
            Forbidden, CannotRun: as ``get``.
        """
        return tuple(self.get(path, **query).get("items") or ())

    def text(self, path: str, **query: str) -> str:
        """The text at *path*: a container's log.

        Raises:
            NotFound, Forbidden, CannotRun: as ``get``.
        """
        return self._call("GET", path, query).decode(errors="replace")

    def kubectl(self, *words: str, namespace: str = "") -> str:
        """The command ``kubectl`` *words* for this cluster."""
        return kubectl(self.context, self.kubeconfig, *words, namespace=namespace)

    def authorization(self, path: str, method: str = "GET") -> dict[str, str]:
        """The header fields that authorize *method* at *path*."""
        headers: dict[str, str] = {}
        self.api.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
        return headers

    def _call(self, method: str, path: str, query: dict[str, str], document: Object | None = None) -> bytes:
        import urllib3
        from kubernetes.client.exceptions import ApiException

        url = f"{self.server}{path}{'?' + urlencode(query) if query else ''}"
        headers = {"Accept": "application/json, */*"} | self.authorization(path, method)
        if document is not None:
            merge = "merge-patch+" if method == "PATCH" else ""
            headers["Content-Type"] = f"application/{merge}json"
        limits = (_CONNECT_LIMIT_S, _READ_LIMIT_S)
        try:
            response = self.api.call_api(method, url, headers, body=document, _request_timeout=limits)
            body: bytes = response.read()
        except (ApiException, urllib3.exceptions.SSLError) as error:  # the client wraps errors of TLS in its own
            reason = _one_line(getattr(error, "reason", "") or error).removeprefix("SSLError ")
            problem = f"There is no trusted connection to {self.server} (context {self.context}): {reason}."
            raise CannotRun(problem, next_step=self.kubectl("cluster-info")) from None
        except urllib3.exceptions.HTTPError as error:
            text = str(error) or type(error).__name__  # without urllib3's objects before it
            reason = text.rpartition("object at 0x")[2].partition(">: ")[2] or text.rpartition("): ")[2] or text
            problem = f"The API server {self.server} of context {self.context} does not respond: {reason}."
            raise CannotRun(problem, next_step=self.kubectl("cluster-info")) from None
        if response.status in (200, 201, 202):
            return body
        try:
            message = str(json.loads(body)["message"])
        except (ValueError, KeyError, TypeError):
            message = body[:200].decode(errors="replace").strip() or "no further message"
        kind, sentence, words = _REFUSALS.get(response.status, _OTHER)
        problem = sentence.format(server=self.server, path=path, status=response.status, message=message)
        raise kind(problem, next_step=self.kubectl(*words))


def kubectl(context: str, kubeconfig: Path | None, *words: str, namespace: str = "") -> str:
    """The command ``kubectl`` *words* for *context*."""
    named = ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
    named += ["--context", context] if context else []
    return shlex.join(["kubectl", *named, *(["-n", namespace] if namespace else []), *words])


def kubeconfigs(kubeconfig: Path | None = None) -> list[Path]:
    """The files of a connection, absolute, whether they are there or not.

    Args:
        kubeconfig: the only one; None: those that ``KUBECONFIG`` names, else ``~/.kube/config``.
    """
    named = [str(kubeconfig)] if kubeconfig else os.environ.get("KUBECONFIG", "").split(os.pathsep)
    return [Path(one).expanduser().absolute() for one in named if one] or [Path(_DEFAULT_KUBECONFIG).expanduser()]


def connect(kubeconfig: Path | None = None, context: str | None = None) -> Cluster:
    """The cluster of *context*, whose API server has responded once.

    Args:
        kubeconfig: the file; None: what ``KUBECONFIG`` names, else ``~/.kube/config``.
        context: a name in it; None: its current one.

    Raises:
        Refused: there is no such file or context, or the credentials are not accepted.
        CannotRun: the API server cannot be reached, or its certificate is not trusted.
    """
    from kubernetes.client import ApiClient

    configuration, chosen = _configured(kubeconfig, context)
    # One immediate failure is worth more than three attempts, of which urllib3 would warn.
    configuration.retries = False
    cluster = Cluster(ApiClient(configuration), chosen, kubeconfig)
    return replace(cluster, version=str(cluster.get("/version").get("gitVersion", "unknown")))


def _configured(kubeconfig: Path | None, context: str | None) -> tuple[Configuration, str]:
    import yaml
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    files = [str(file) for file in kubeconfigs(kubeconfig) if file.is_file()]
    shown = ":".join(files)
    if not files:
        named = os.pathsep.join(map(str, kubeconfigs(kubeconfig)))
        raise Refused(f"There is no kubeconfig {named}.", next_step="Name it with --kubeconfig FILE, or set KUBECONFIG")
    # The client logs why a program of the credentials failed, where it should raise.
    logged = BufferingHandler(capacity=1000)
    logged.setLevel(logging.ERROR)
    logging.getLogger().addHandler(logged)
    try:
        merged, configuration = KubeConfigMerger(os.pathsep.join(files)).config, Configuration()
        chosen = _chosen(merged.value, context, shown, kubeconfig)
        KubeConfigLoader(merged, active_context=chosen).load_and_set(configuration)
    except (ConfigException, yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        problem = f"{shown} is no kubeconfig that can be used: {_one_line(error).rstrip('.') or type(error).__name__}."
        raise Refused(problem, next_step="Compare it with: kubectl config view") from None
    except OSError as error:
        raise Refused(f"{shown} cannot be read: {error.strerror or error}.", next_step=f"ls -l {shown}") from None
    finally:
        logging.getLogger().removeHandler(logged)
    if logged.buffer:  # worth more than the 401 that would follow
        messages = " ".join(record.getMessage().strip() for record in logged.buffer)
        raise CannotRun(
            f"The credentials of context {chosen} ({shown}) cannot be obtained: {messages}",
            next_step=kubectl(chosen, kubeconfig, "auth", "whoami"),
        )
    return configuration, chosen


def _chosen(config: Object, context: str | None, shown: str, kubeconfig: Path | None) -> str:
    names = [str(one["name"]) for one in config.get("contexts") or []]
    have = f"it has: {', '.join(names)}" if names else "it has none"
    chosen = str(config.get("current-context") or "") if context is None else context
    if not chosen and context is None:
        raise Refused(f"{shown} names no current context; {have}.", next_step="Name one with: --context NAME")
    if chosen not in names:
        step = kubectl("", kubeconfig, "config", "get-contexts")
        raise Refused(f"{shown} has no context {chosen}; {have}.", next_step=step)
    return chosen


def _one_line(text: object) -> str:
    return " ".join(str(text).split())

"""A port of this machine whose connections end in a pod: what ``kubectl port-forward`` does, without kubectl.

Each connection has a WebSocket of its own through the API server (subprotocol ``v4.channel.k8s.io``: channel 0 carries
the bytes, channel 1 an error, and each begins with the port's number).  The protocol cannot say that one direction has
ended, so a client that has closed its half still gets an answer that is on its way, until the pod is silent for
``HALF_OPEN_S``.

One thread with an event loop serves all connections.  It has ended, and every connection with it, when the ``with``
block is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from socket import socket as Socket  # noqa: N812 - the WebSockets are called socket here
from typing import TYPE_CHECKING, Any

from corral.cluster.client import Cluster, Object
from corral.errors import CannotRun, CorralError, Refused

if TYPE_CHECKING:
    import aiohttp

HALF_OPEN_S = 5.0
"""How long the pod may be silent after the client has closed its half of a connection."""

_HOST = "127.0.0.1"
_OPEN_LIMIT_S = 10.0
_CLOSE_LIMIT_S = 1.0
_PIECE = 64 * 1024
_DATA = 0  # the other channel is the error's
_NAME = "app.kubernetes.io/name"


@contextmanager
def forwarded(cluster: Cluster, namespace: str, service: str = "llama-swap") -> Iterator[str]:
    """``http://127.0.0.1:PORT``, behind which a ready pod of *service* answers, as long as the block runs.

    A connection that is made after the pod was replaced goes to the one that is ready then.

    Raises:
        CannotRun: there is no such Service, none of its pods is ready, or nothing listens in the pod.
        Refused: the user may not look, or may not forward.
    """
    forward = _Forward(cluster, namespace, service)
    forward.start()
    try:
        yield f"http://{_HOST}:{forward.port}"
    finally:
        forward.stop()


@dataclass(frozen=True)
class Target:
    """Where connections go."""

    pod: str
    port: int


def find_service(cluster: Cluster, namespace: str, service: str) -> Object:
    """The Service of that name, else the only one that is labelled with it.

    Raises:
        CannotRun: there is none, or more than one.
    """
    path = f"/api/v1/namespaces/{namespace}/services"
    services = cluster.items(path)
    named = [one for one in services if one["metadata"]["name"] == service]
    found = named or [one for one in services if one["metadata"].get("labels", {}).get(_NAME) == service]
    if len(found) == 1:
        return found[0]
    have = ", ".join(str(one["metadata"]["name"]) for one in found or services) or "none"
    raise CannotRun(
        f"The namespace {namespace} (context {cluster.context}) has "
        f"{'more than one' if found else 'no'} Service for {service}; it has: {have}.",
        next_step=cluster.kubectl("get", "services", "--all-namespaces"),
    )


def find_target(cluster: Cluster, namespace: str, service: str) -> Target:
    """A pod of *service* that is ready, and the port in it.

    Raises:
        CannotRun: none is ready.
    """
    found = find_service(cluster, namespace, service)
    selector = found["spec"].get("selector") or {}
    label_selector = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    pods = cluster.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=label_selector) if selector else ()
    for pod in pods:
        if _is_ready(pod):
            return Target(str(pod["metadata"]["name"]), _port_in(pod, found["spec"]["ports"][0]))
    told = ", ".join(f"{pod['metadata']['name']} is {_phase(pod)}" for pod in pods) or "it has no pod"
    raise CannotRun(
        f"No pod of the Service {found['metadata']['name']} in {namespace} is ready: {told}.",
        next_step=f"corral status --context {cluster.context} --namespace {namespace}",
    )


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def _phase(pod: Object) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "being stopped"
    phase = str(pod.get("status", {}).get("phase", "of an unknown phase"))
    return "Running, but not ready" if phase == "Running" else phase


def _port_in(pod: Object, port: Object) -> int:
    """The number of the pod's port that the Service's *port* stands for."""
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    for container in pod["spec"]["containers"]:
        for one in container.get("ports") or []:
            if one.get("name") == target:
                return int(one["containerPort"])
    raise CannotRun(
        f"The Service sends to the port named {target}, and the pod {pod['metadata']['name']} names no such port.",
        next_step=f"kubectl -n {pod['metadata']['namespace']} describe pod {pod['metadata']['name']}",
    )


class _Forward:
    def __init__(self, cluster: Cluster, namespace: str, service: str) -> None:
        self._cluster, self._namespace, self._service = cluster, namespace, service
        self._target = find_target(cluster, namespace, service)
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._sockets: weakref.WeakSet[Socket] = weakref.WeakSet()
        self._tls = _tls(cluster.api.configuration)
        self._thread = threading.Thread(target=self._run, name=f"port-forward {namespace}/{service}", daemon=True)
        self.port = 0

    def start(self) -> None:
        self._thread.start()
        self._started.wait()
        if self._failure:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        if self._loop and self._stop:
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    # -- in the thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        import aiohttp

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        connections: set[asyncio.Task[None]] = set()
        connector = aiohttp.TCPConnector(socket_factory=self._socket)
        async with aiohttp.ClientSession(trust_env=False, connector=connector) as session:

            def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.create_task(self._connection(session, reader, writer))
                connections.add(task)
                task.add_done_callback(connections.discard)

            # Once for nothing: whoever may not forward is told so, and not by a connection that breaks.
            await self._close(await self._open(session, self._target))
            server = await asyncio.start_server(accepted, _HOST, 0)
            try:
                self.port = int(server.sockets[0].getsockname()[1])
                self._started.set()
                await self._stop.wait()
            finally:
                server.close()
                left = set(connections)
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)
                await server.wait_closed()
        await self._closed()

    def _socket(self, address: tuple[Any, ...]) -> Socket:
        made = Socket(*address[:3])
        self._sockets.add(made)
        return made

    async def _closed(self) -> None:
        """Return when every connection to the API server is closed: TLS says goodbye first, and that takes a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_LIMIT_S):
                while any(one.fileno() != -1 for one in self._sockets):  # noqa: ASYNC110 - nobody tells when
                    await asyncio.sleep(0.01)

    async def _connection(
        self, session: aiohttp.ClientSession, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            socket = await self._open_anew(session)
        except (CorralError, OSError, TimeoutError):
            writer.transport.abort()  # the client sees a reset: no pod, no answer
            return
        try:
            await _pump(socket, reader, writer)
        finally:
            await self._close(socket)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _open_anew(self, session: aiohttp.ClientSession) -> aiohttp.ClientWebSocketResponse[bool]:
        """To the pod of before; when that is gone, to the one that is ready now."""
        try:
            return await self._open(session, self._target)
        except CannotRun:
            self._target = await asyncio.to_thread(find_target, self._cluster, self._namespace, self._service)
            return await self._open(session, self._target)

    async def _open(self, session: aiohttp.ClientSession, target: Target) -> aiohttp.ClientWebSocketResponse[bool]:
        import aiohttp

        configuration = self._cluster.api.configuration
        path = f"/api/v1/namespaces/{self._namespace}/pods/{target.pod}/portforward"
        headers: dict[str, str] = {}
        self._cluster.api.update_params_for_auth(headers, [], ["BearerToken"], path, "GET", None)
        where = f"{target.pod} in {self._namespace} (context {self._cluster.context})"
        again = f"corral status --context {self._cluster.context} --namespace {self._namespace}"
        try:
            async with asyncio.timeout(_OPEN_LIMIT_S):
                return await session.ws_connect(
                    f"{self._cluster.server}{path}?ports={target.port}",
                    headers=headers,
                    protocols=("v4.channel.k8s.io",),
                    ssl=self._tls,
                    server_hostname=configuration.tls_server_name or None,
                    proxy=configuration.proxy or None,
                    proxy_headers=configuration.proxy_headers or None,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_LIMIT_S),
                )
        except aiohttp.WSServerHandshakeError as error:
            if error.status in (401, 403):
                raise Refused(
                    f"The API server refuses ({error.status}) to forward a port to the pod {where}: "
                    "the user may not create pods/portforward.",
                    next_step=self._cluster.kubectl("auth", "can-i", "create", "pods/portforward"),
                ) from None
            raise CannotRun(
                f"No port can be forwarded to the pod {where}: HTTP {error.status}.", next_step=again
            ) from None
        except (aiohttp.ClientError, TimeoutError) as error:
            said = str(error) or f"no answer within {_OPEN_LIMIT_S:.0f} s"
            raise CannotRun(f"No port can be forwarded to the pod {where}: {said}.", next_step=again) from None

    @staticmethod
    async def _close(socket: aiohttp.ClientWebSocketResponse[bool]) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            await socket.close()


def _tls(configuration: Any) -> ssl.SSLContext | bool:
    if not str(configuration.host).startswith("https"):
        return True  # unused
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif configuration.assert_hostname is not None:
        context.check_hostname = bool(configuration.assert_hostname)
    return context


async def _pump(
    socket: aiohttp.ClientWebSocketResponse[bool], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Carry bytes both ways until the pod has closed, the client is gone, or was silent for too long after half."""
    sent = asyncio.create_task(_up(socket, reader))
    received = asyncio.create_task(_down(socket, writer, sent))
    try:
        await received
    finally:
        for task in (sent, received):
            task.cancel()
        await asyncio.gather(sent, received, return_exceptions=True)


async def _up(socket: aiohttp.ClientWebSocketResponse[bool], reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE):
            await socket.send_bytes(bytes([_DATA]) + data)


async def _down(
    socket: aiohttp.ClientWebSocketResponse[bool], writer: asyncio.StreamWriter, sent: asyncio.Task[None]
) -> None:
    import aiohttp

    begun: set[int] = set()
    with contextlib.suppress(OSError):
        while True:
            message = await _next(socket, sent)
            if message is None or message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                return
            channel, data = message.data[0], message.data[1:]
            if channel not in begun:
                begun.add(channel)  # the number of the port
            elif channel == _DATA:
                writer.write(data)
                await writer.drain()
            else:
                writer.transport.abort()  # nobody listens there, or the pod is gone: no orderly end
                return


async def _next(socket: aiohttp.ClientWebSocketResponse[bool], sent: asyncio.Task[None]) -> Any:
    """The next message; None when the client has closed its half and the pod has said nothing since for a while."""
    coming = asyncio.ensure_future(socket.receive())
    try:
        await asyncio.wait({coming, sent}, return_when=asyncio.FIRST_COMPLETED)
        if not coming.done():
            await asyncio.wait({coming}, timeout=HALF_OPEN_S)
        return coming.result() if coming.done() else None
    finally:
        coming.cancel()

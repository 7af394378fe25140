"""A port of this machine whose connections end in a pod: what ``kubectl port-forward`` does, without kubectl.

Each connection has a WebSocket of its own through the API server (subprotocol ``v4.channel.k8s.io``: channel 0 carries
the bytes, channel 1 an error, and each begins with the port's number).  The protocol cannot express that one direction
has ended, so a client that has closed its half still gets a response that is on its way, until the pod is silent for
``HALF_OPEN_S``.  ``kubernetes.stream.portforward`` drops that response, and its opening has no time limit.

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
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from socket import socket as Socket  # noqa: N812 - the WebSockets are called socket here
from typing import TYPE_CHECKING, Any, TypeAlias

from corral.cluster.client import Cluster, Object
from corral.cluster.snapshot import NAME, at, is_ready, is_stopping, labels, listed, name_of
from corral.errors import CannotRun, CorralError, Refused

if TYPE_CHECKING:
    import aiohttp

    WebSocket: TypeAlias = aiohttp.ClientWebSocketResponse[bool]

HALF_OPEN_S = 5.0
"""How long the pod may be silent after the client has closed its half of a connection."""

_HOST = "127.0.0.1"
_OPEN_LIMIT_S = 10.0
_CLOSE_LIMIT_S = 1.0
_PIECE = 64 * 1024
_DATA = 0  # the other channel is the error's


@contextmanager
def forwarded(
    cluster: Cluster, namespace: str, service: str = "llama-swap", *, port: int | str | None = None, node: str = ""
) -> Iterator[str]:
    """``http://127.0.0.1:PORT``, which leads to a ready pod of *service* as long as the block runs.

    Where *node* is given, it is the one on that node.

    It leads to *port* in the pod, a number or a name, by default to that of the Service; a pod's own loopback is
    reached too.

    A connection that is made after the pod was replaced leads to the one that is ready then.

    Raises:
        CannotRun: there is no such Service, none of its pods is ready, or nothing listens in the pod.
        Refused: the user may not read them, or may not forward.
    """
    forward = _Forward(cluster, namespace, service, port, node)
    thread = threading.Thread(target=forward.run, name=f"port-forward {namespace}/{service}", daemon=True)
    thread.start()
    try:
        yield f"http://{_HOST}:{forward.port.result()}"
    finally:
        forward.stop()
        thread.join()


def ready_pod(cluster: Cluster, namespace: str, service: str) -> Object:
    """The ready pod of *service* that a connection would lead to.

    Raises:
        CannotRun: there is no such Service, or none of its pods is ready.
        Refused: the user may not read them.
    """
    return _all_ready(cluster, namespace, _find_service(cluster, namespace, service), "")[0]


def ready_nodes(cluster: Cluster, namespace: str, service: str) -> tuple[str, ...]:
    """The nodes of the ready pods of *service*, sorted.

    Raises:
        CannotRun: there is no such Service, or none of its pods is ready.
        Refused: the user may not read them.
    """
    found = _all_ready(cluster, namespace, _find_service(cluster, namespace, service), "")
    return tuple(sorted({str(at(pod, "spec", "nodeName") or "") for pod in found}))


def _find_target(cluster: Cluster, namespace: str, service: str, port: int | str | None, node: str) -> tuple[str, int]:
    """The name of a ready pod of *service*, and the port in it: *port*, or that of the Service."""
    found = _find_service(cluster, namespace, service)
    pod, first = _all_ready(cluster, namespace, found, node)[0], found["spec"]["ports"][0]
    return name_of(pod), _port_in(pod, port or first.get("targetPort") or first["port"])


def _all_ready(cluster: Cluster, namespace: str, service: Object, node: str) -> list[Object]:
    selector = ",".join(f"{key}={value}" for key, value in sorted((at(service, "spec", "selector") or {}).items()))
    pods = cluster.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector) if selector else ()
    pods = tuple(pod for pod in pods if node in ("", at(pod, "spec", "nodeName")))
    if found := list(filter(is_ready, pods)):
        return found
    states = ", ".join(f"{name_of(pod)} is {_phase(pod)}" for pod in pods) or "it has no pod there"
    where = f"node {node}" if node else namespace
    raise CannotRun(
        f"No pod of the Service {name_of(service)} in {where} is ready: {states}.",
        next_step=f"corral status --context {cluster.context} --namespace {namespace}",
    )


def _find_service(cluster: Cluster, namespace: str, service: str) -> Object:
    """The Service of that name, else the only one that is labelled with it."""
    services = cluster.items(f"/api/v1/namespaces/{namespace}/services")
    found = [one for one in services if name_of(one) == service]
    found = found or [one for one in services if labels(one).get(NAME) == service]
    if len(found) == 1:
        return found[0]
    have = ", ".join(map(name_of, found or services)) or "none"
    raise CannotRun(
        f"The namespace {namespace} (context {cluster.context}) has "
        f"{'more than one' if found else 'no'} Service for {service}; it has: {have}.",
        next_step=cluster.kubectl("get", "services", "--all-namespaces"),
    )


def _phase(pod: Object) -> str:
    if is_stopping(pod):
        return "being stopped"
    phase = str(at(pod, "status", "phase") or "of an unknown phase")
    return "Running, but not ready" if phase == "Running" else phase


def _port_in(pod: Object, port: int | str) -> int:
    """The number of the pod's *port*, which may be its name."""
    if isinstance(port, int):
        return port
    found = [*listed(pod, "spec", "initContainers"), *pod["spec"]["containers"]]
    ports = (one for container in found for one in listed(container, "ports"))
    if number := next((one["containerPort"] for one in ports if one.get("name") == port), None):
        return int(number)
    raise CannotRun(
        f"The pod {name_of(pod)} names no port {port}.",
        next_step=f"kubectl -n {pod['metadata']['namespace']} describe pod {name_of(pod)}",
    )


class _Forward:
    def __init__(self, cluster: Cluster, namespace: str, service: str, port: int | str | None, node: str) -> None:
        self.port: Future[int] = Future()
        self._cluster, self._namespace = cluster, namespace
        self._find = partial(_find_target, cluster, namespace, service, port, node)
        self._target = self._find()
        self._tls = _tls(cluster.api.configuration)
        self._loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._sockets: weakref.WeakSet[Socket] = weakref.WeakSet()

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._stop.set)

    # -- in the thread ------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if self.port.done():
                raise
            self.port.set_exception(error)

    async def _serve(self) -> None:
        import aiohttp

        connector = aiohttp.TCPConnector(socket_factory=self._socket)
        async with aiohttp.ClientSession(trust_env=False, connector=connector) as self._session:
            # A first WebSocket without use: a user who may not forward gets that error, not a broken connection.
            await _close(await self._open(*self._target))
            server = await asyncio.start_server(self._accept, _HOST, 0)
            try:
                self.port.set_result(int(server.sockets[0].getsockname()[1]))
                await self._stop.wait()
            finally:
                server.close()
                for task in self._connections:
                    task.cancel()
                await asyncio.gather(*self._connections, return_exceptions=True)
                await server.wait_closed()
        await self._closed()

    def _socket(self, address: tuple[Any, ...]) -> Socket:
        made = Socket(*address[:3])
        self._sockets.add(made)
        return made

    async def _closed(self) -> None:
        """Return when every connection to the API server is closed: the end of TLS takes a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_LIMIT_S):
                while any(one.fileno() != -1 for one in self._sockets):  # noqa: ASYNC110 - no event reports it
                    await asyncio.sleep(0.01)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connection(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            socket = await self._open_again()
        except (CorralError, OSError, TimeoutError):
            writer.transport.abort()  # the client gets a reset: no pod, no response
            return
        try:
            await _pump(socket, reader, writer)
        finally:
            await _close(socket)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _open_again(self) -> WebSocket:
        """To the same pod; when that is gone, to the one that is ready now."""
        try:
            return await self._open(*self._target)
        except CannotRun:
            self._target = await asyncio.to_thread(self._find)
            return await self._open(*self._target)

    async def _open(self, pod: str, port: int) -> WebSocket:
        import aiohttp

        cluster, configuration = self._cluster, self._cluster.api.configuration
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod}/portforward"
        where = f"{pod} in {self._namespace} (context {cluster.context})"
        try:
            async with asyncio.timeout(_OPEN_LIMIT_S):
                return await self._session.ws_connect(
                    f"{cluster.server}{path}?ports={port}",
                    headers=cluster.authorization(path),
                    protocols=("v4.channel.k8s.io",),
                    ssl=self._tls,
                    server_hostname=configuration.tls_server_name or None,
                    proxy=configuration.proxy or None,
                    proxy_headers=configuration.proxy_headers or None,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_LIMIT_S),
                )
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = str(error) or f"no response within {_OPEN_LIMIT_S:.0f} s"
            if isinstance(error, aiohttp.WSServerHandshakeError):
                reason = f"HTTP {error.status}"
                if error.status in (401, 403):
                    raise Refused(
                        f"The API server refuses ({error.status}) to forward a port to the pod {where}: "
                        "the user may not create pods/portforward.",
                        next_step=cluster.kubectl("auth", "can-i", "create", "pods/portforward"),
                    ) from None
            raise CannotRun(
                f"No port can be forwarded to the pod {where}: {reason}.",
                next_step=f"corral status --context {cluster.context} --namespace {self._namespace}",
            ) from None


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


async def _close(socket: WebSocket) -> None:
    with contextlib.suppress(OSError, TimeoutError):
        await socket.close()


async def _pump(socket: WebSocket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes both ways until the pod has closed, the client is gone, or the pod is silent too long after half."""
    sent = asyncio.create_task(_up(socket, reader))
    try:
        await _down(socket, writer, sent)
    finally:
        sent.cancel()
        await asyncio.gather(sent, return_exceptions=True)


async def _up(socket: WebSocket, reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE):
            await socket.send_bytes(bytes([_DATA]) + data)


async def _down(socket: WebSocket, writer: asyncio.StreamWriter, sent: asyncio.Task[None]) -> None:
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
                writer.transport.abort()  # nothing listens there, or the pod is gone: no orderly end
                return


async def _next(socket: WebSocket, sent: asyncio.Task[None]) -> Any:
    """The next message; None when the client has closed its half and the pod was silent for a while since."""
    received = asyncio.ensure_future(socket.receive())
    try:
        await asyncio.wait({received, sent}, return_when=asyncio.FIRST_COMPLETED)
        if not received.done():
            await asyncio.wait({received}, timeout=HALF_OPEN_S)
        return received.result() if received.done() else None
    finally:
        received.cancel()

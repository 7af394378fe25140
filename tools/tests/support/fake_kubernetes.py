"""An API server that serves the objects of a test, refuses what the test names, and forwards ports to this machine.

Why a stub, when a real Kubernetes runs in tests/cluster: an expired token, a forbidden verb, or a pod that goes away in
the middle of a stream cannot be had there when a test wants them.  The shapes of refusals and the port-forward's frames
are those that kube-apiserver and kubelet v1.34.4 send (staging/src/k8s.io/kubelet/pkg/cri/streaming/portforward).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import WSMsgType, web

TOKEN = "a-token"
OPERATOR = "corral-key-of-the-operator"
_LIST = re.compile(r"/apis?/(?:[a-z.]+/)?v1/(?:namespaces/[^/]+/)?[a-z]+")


@dataclass
class FakeKubernetes:
    """The state of the server.

    Attributes:
        objects: path → what GET answers; a list of items becomes a List; POST and PUT write into it.
        refuse: path → HTTP status in place of it.
        ports: pod → the port of this machine that stands for its own.
        inner: port in a pod → the port of this machine that stands for it; any other is the pod's own.
        paths: of all requests.
        open_forwards: how many forwarded connections there are now.
    """

    folder: Path
    objects: dict[str, Any] = field(default_factory=dict)
    refuse: dict[str, int] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    inner: dict[int, int] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    open_forwards: int = 0
    port: int = 0
    _cut: list[Any] = field(default_factory=list)
    _loop: Any = None
    _version: int = 0

    @property
    def kubeconfig(self) -> Path:
        """With the contexts ``lab`` (current), ``expired`` and ``gone``."""
        path = self.folder / "kubeconfig"
        here = {"server": f"http://127.0.0.1:{self.port}"}
        contexts = {"lab": ("here", "me"), "expired": ("here", "old"), "gone": ("nowhere", "me")}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "clusters": [
                {"name": "here", "cluster": here},
                {"name": "nowhere", "cluster": {"server": "http://127.0.0.1:1"}},
            ],
            "users": [{"name": "me", "user": {"token": TOKEN}}, {"name": "old", "user": {"token": "old"}}],
            "contexts": [
                {"name": name, "context": {"cluster": cluster, "user": user}}
                for name, (cluster, user) in contexts.items()
            ],
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def cut(self) -> None:
        """End all forwarded connections, as when their pod goes away."""
        assert self._loop is not None
        for transport in list(self._cut):
            self._loop.call_soon_threadsafe(transport.close)

    def pod(
        self, name: str = "llama-swap-0", *, namespace: str = "llama-cpp", port: int = 0, ready: bool = True
    ) -> None:
        """A Service llama-swap with the one pod *name*, whose ports are *port* here, and the operator's key."""
        labels = {"app.kubernetes.io/name": "llama-swap"}
        base = f"/api/v1/namespaces/{namespace}"
        self.objects[base] = {"metadata": {"name": namespace}}
        self.objects[f"{base}/secrets/corral-keys"] = {
            "data": {"operator": base64.b64encode(OPERATOR.encode()).decode()}
        }
        self.objects[f"{base}/services"] = [
            {
                "metadata": {"name": "llama-swap", "namespace": namespace, "labels": labels},
                "spec": {"selector": labels, "ports": [{"port": 8080, "targetPort": "http"}]},
            }
        ]
        self.objects[f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"] = [
            {"metadata": {"name": policy}} for policy in ("default-deny", "llama-swap")
        ]
        self.objects[f"{base}/pods"] = [
            {
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
                "spec": {
                    "initContainers": [{"name": "guard", "ports": [{"name": "guard", "containerPort": 8081}]}],
                    "containers": [{"name": "llama-swap", "ports": [{"name": "http", "containerPort": 8080}]}],
                },
                "status": {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                },
            }
        ]
        self.ports = {name: port}

    def card(self, name: str, *, port: int) -> None:
        """A further card beside ``pod``: a pod whose ports are *port* here, and a Service that leads to it alone."""
        base, labels = "/api/v1/namespaces/llama-cpp", {"app.kubernetes.io/name": "llama-swap", "corral/card": name}
        for kind in ("services", "pods"):
            one = copy.deepcopy(self.objects[f"{base}/{kind}"][0])
            one["metadata"] |= {"name": f"llama-swap-{name}", "labels": labels}
            self.objects[f"{base}/{kind}"].append(one)
        self.objects[f"{base}/services"][-1]["spec"]["selector"] = labels
        self.ports[f"llama-swap-{name}"] = port

    def deployed(self, config: str, *, namespace: str = "llama-cpp") -> None:
        """All that `corral status` reads, around ``pod``: a Deployment whose ConfigMap has *config*."""
        base = f"/api/v1/namespaces/{namespace}"
        volumes = [{"name": "config", "configMap": {"name": "llama-swap"}}]
        deployment = {
            "metadata": {"name": "llama-swap", "namespace": namespace},
            "spec": {"replicas": 1, "template": {"metadata": {}, "spec": {"volumes": volumes}}},
        }
        self.objects[f"/apis/apps/v1/namespaces/{namespace}/deployments"] = [deployment]
        self.objects[f"{base}/configmaps/llama-swap"] = {"data": {"config.yaml": config}}
        self.objects[f"{base}/pods/llama-swap-0/log"] = ""

    # -- answers ------------------------------------------------------------------------------------------

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        self.paths.append(path)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _status(401, "Unauthorized")
        if status := self.refuse.get(path):
            resource = path.rsplit("/", 1)[-1]
            words = f'{resource} is forbidden: User "me" cannot list resource "{resource}" in API group ""'
            return _status(status, words if status == 403 else "the server is currently unable to handle the request")
        if request.method in ("POST", "PUT"):
            return self._write(request.method, path, await request.json())
        if path.endswith("/portforward"):
            return await self._forward(request, path.split("/")[-2])
        if path == "/version":
            return web.json_response({"gitVersion": "v1.34.4"})
        if path not in self.objects and _LIST.fullmatch(path):
            return web.json_response({"items": []})  # also of a namespace that does not exist
        if path not in self.objects:
            return _status(404, f"{path} not found")
        found = self.objects[path]
        if isinstance(found, str):
            return web.Response(text=found)
        if isinstance(found, list) and path.endswith("/pods"):
            wanted = dict(one.split("=") for one in request.query.get("labelSelector", "").split(",") if one)
            found = [one for one in found if wanted.items() <= one["metadata"].get("labels", {}).items()]
        return web.json_response({"items": found} if isinstance(found, list) else found)

    def _write(self, method: str, path: str, one: dict[str, Any]) -> web.Response:
        if method == "POST":
            if path.rpartition("/")[0] not in self.objects:
                return _status(404, f"{path.rpartition('/')[0]} not found")
            path = f"{path}/{one['metadata']['name']}"
            if path in self.objects:
                return _status(409, f"{path} already exists")
        elif one["metadata"].get("resourceVersion") != self.objects[path]["metadata"]["resourceVersion"]:
            return _status(409, "the object has been modified")
        self._version += 1
        self.objects[path] = one | {"metadata": one["metadata"] | {"resourceVersion": str(self._version)}}
        return web.json_response(self.objects[path], status=201 if method == "POST" else 200)

    async def _forward(self, request: web.Request, pod: str) -> web.StreamResponse:
        if pod not in self.ports:
            return _status(404, f'pods "{pod}" not found')
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        wanted = int(request.query["ports"])
        number = wanted.to_bytes(2, "little")
        await socket.send_bytes(b"\0" + number)
        await socket.send_bytes(b"\1" + number)
        self.open_forwards += 1
        assert request.transport is not None
        self._cut.append(request.transport)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.inner.get(wanted, self.ports[pod]))
        except OSError as error:
            await socket.send_bytes(b"\1" + f"error forwarding port to pod {pod}: {error}".encode())
            await socket.close()
            self.open_forwards -= 1
            return socket
        up = asyncio.create_task(_copy_up(socket, writer))
        down = asyncio.create_task(_copy_down(socket, reader))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self.open_forwards -= 1
            with contextlib.suppress(OSError):
                await socket.close()
        return socket


async def _copy_up(socket: web.WebSocketResponse, writer: asyncio.StreamWriter) -> None:
    async for message in socket:
        if message.type is WSMsgType.BINARY and message.data[:1] == b"\0":
            writer.write(message.data[1:])
            await writer.drain()


async def _copy_down(socket: web.WebSocketResponse, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(32 * 1024):
        await socket.send_bytes(b"\0" + data)


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "status": "Failure", "code": code, "message": message}, status=code)


@contextmanager
def fake_kubernetes(folder: Path) -> Iterator[FakeKubernetes]:
    """A server that runs as long as the block; its kubeconfig lies in *folder*."""
    fake = FakeKubernetes(folder)
    started, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        fake._loop = asyncio.get_running_loop()
        app = web.Application()
        for method in ("GET", "POST", "PUT"):
            app.router.add_route(method, "/{anything:.*}", fake.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.2)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        fake.port = runner.addresses[0][1]
        started.set()
        await stop.wait()
        fake.cut()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield fake
    finally:
        fake._loop.call_soon_threadsafe(stop.set)
        thread.join()

"""A real browser, without a window: Debian's Chromium, by the DevTools protocol (https://chromedevtools.github.io)."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
import subprocess
from contextlib import asynccontextmanager

import aiohttp

from tests.support.kernel import not_permitted

_LIMIT_S = 60
_OPTIONS = (
    *("--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-extensions", "--remote-debugging-port=0", "--hide-scrollbars", "--lang=en-GB"),
)


class Page:
    """One page of the browser, and what it has done."""

    def __init__(self, socket):
        self._socket, self._numbers = socket, itertools.count(1)
        self._answers = {}
        self._password, self._tasks = None, set()
        self.events = []
        self._reader = asyncio.ensure_future(self._read())

    async def call(self, method, **parameters):
        """What the browser answers to *method*."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        answer = await asyncio.wait_for(self._answers[number], _LIMIT_S)
        assert "error" not in answer, answer
        return answer["result"]

    async def evaluate(self, expression):
        """The value of *expression* in the page."""
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def wait_for(self, expression):
        """Return when *expression* is true in the page; it is evaluated after each frame."""
        frame = "new Promise((done) => setTimeout(done, 50))"
        script = f"(async () => {{ while (!({expression})) await {frame}; return true; }})()"
        assert await asyncio.wait_for(self.evaluate(script), _LIMIT_S)

    async def open(self, address, *, width=1100, height=800, scheme="light", password=None):
        """Show *address* in a window of this size, for a reader who prefers *scheme*.

        The reader types *password* when asked for it, and gives up when asked again.
        """
        self._password = password
        if password is not None:
            await self.call("Fetch.enable", handleAuthRequests=True)
        for domain in ("Page", "Network", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        await self.resize(width, height)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)
        await self.call("Page.navigate", url=address)

    async def resize(self, width, height):
        """Give the window another size; narrow ones are a phone's."""
        options = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **options)

    async def names(self, role):
        """The names by which a screen reader has the elements of *role*."""
        tree = await self.call("Accessibility.getFullAXTree")
        return [one["name"]["value"] for one in tree["nodes"] if one.get("role", {}).get("value") == role]

    async def picture(self):
        """A PNG of the window."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])

    def of(self, method):
        """The parameters of each event *method* so far."""
        return [one["params"] for one in self.events if one["method"] == method]

    async def _read(self):
        async for message in self._socket:
            found = message.json()
            if "id" in found:
                self._answers.pop(found["id"]).set_result(found)
            else:
                self.events.append(found)
                self._act(found["method"], found["params"])

    def _act(self, method, parameters):
        """Let a request go on, and act as the reader where a person would be asked for a password."""
        if method == "Fetch.authRequired":
            typed = {"response": "ProvideCredentials", "username": "me", "password": self._password}
            if len(self.of(method)) > 1:
                typed = {"response": "CancelAuth"}
            coming = self.call("Fetch.continueWithAuth", requestId=parameters["requestId"], authChallengeResponse=typed)
        elif method == "Fetch.requestPaused":
            coming = self.call("Fetch.continueRequest", requestId=parameters["requestId"])
        else:
            return
        task = asyncio.ensure_future(coming)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self):
        await self._socket.close()
        await self._reader


@asynccontextmanager
async def browser(folder):
    """A page of a browser that keeps its files in *folder*; the test is skipped where none is installed."""
    program = shutil.which("chromium")
    if program is None:
        not_permitted("there is no chromium; install it: INSTALL=1 make test")
    options = [*_OPTIONS, f"--user-data-dir={folder}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    process = await asyncio.create_subprocess_exec(
        program, *options, "about:blank", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        port = await asyncio.wait_for(_port(process), _LIMIT_S)
        reading = asyncio.ensure_future(process.stderr.read())  # a pipe that is full would stop it
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                (target,) = [one for one in await answer.json() if one["type"] == "page"]
            page = Page(await session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0))
            yield page
            await page.close()
    finally:
        process.kill()
        await process.wait()
    await reading


async def _port(process):
    async for line in process.stderr:
        if b"DevTools listening on ws://" in line:
            return int(line.split(b"ws://127.0.0.1:")[1].partition(b"/")[0])
    raise AssertionError("chromium ended before it listened")

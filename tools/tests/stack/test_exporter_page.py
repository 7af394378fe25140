"""The exporter's page in a real browser: what it shows of an incident, to whom, and what it loads."""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from contextlib import asynccontextmanager, closing
from urllib.request import urlopen

import pytest
from prometheus_client.registry import Collector

from corral import keys
from corral.exporter import account
from corral.exporter.keys import OperatorKeys
from corral.exporter.server import serving
from corral.exporter.yields import Yielded
from corral.keys import OPERATOR, LocalKeys
from tests.support.browser import browser
from tests.support.recorded import PROMISES, SILENT, Scene, reading, request

CALM = {"immich_ml": 2040, "frigate": 1900}
GROWN = CALM | {"immich_ml": 10726}
FAILED = request(500, load_failure="process-ended")
SHOWN = "document.querySelectorAll('article').length && document.querySelectorAll('#served h2').length"
pytestmark = pytest.mark.timeout(180)


class NoMetrics(Collector):
    def collect(self):
        return []


@pytest.fixture
def scene(tmp_path):
    with closing(Scene(tmp_path / "records")) as found:
        found.now = time.time() - 2400
        yield found


def incident(scene):
    """2026-06-02: the model answers, is unloaded, a tenant grows, and the next loads fail."""
    scene.sample(reading(chat=6996, **CALM), models={"chat": "ready"}, times=60)
    scene.sample(reading(**CALM), models={}, times=20)
    for mib in range(2040, 10726, 400):
        scene.sample(reading(**CALM | {"immich_ml": mib}))
    scene.sample(reading(**GROWN), times=8)
    scene.sample(times=8, requests=[FAILED, FAILED])


@asynccontextmanager
async def shown(scene, folder, *, operator_keys=None, **options):
    """The page of an exporter that has recorded *scene*, and its server."""

    def cards():
        return {"at": time.time(), "cards": [one.as_json() for one in account.of(PROMISES, scene.reading)]}

    with serving(("127.0.0.1", 0), NoMetrics(), cards, scene.recorder, operator_keys) as server:
        async with browser(folder / "browser") as page:
            await page.open(f"http://127.0.0.1:{server.server_port}/", **options)
            await page.wait_for(SHOWN)
            yield page, server


def in_page(scene, folder, act, **options):
    """What *act* gives for the page and its server."""

    async def run():
        async with shown(scene, folder, **options) as (page, server):
            return await act(page, server)

    return asyncio.run(run())


async def text(page):
    return await page.evaluate("document.body.innerText")


def test_the_incident_is_on_the_page_holder_model_and_failed_requests(scene, tmp_path):
    incident(scene)
    scene.now = time.time()
    scene.sample()

    async def act(page, _server):
        curves = await page.names("image")
        return await text(page), await page.evaluate("document.querySelectorAll('tbody tr').length"), curves

    words, rows, images = in_page(scene, tmp_path, act)
    assert "2,434 MiB free now; immich-ml holds 8,626 MiB more than its promise" in words
    assert "cannot be loaded: 4,562 MiB short" in words
    assert "None is loaded." in words
    assert re.search(r"chat\s+8\s+its load failed, the process ended before it was ready", words)
    assert rows > 5
    assert "last hour: 2,040 to 10,726 MiB, at most 10,726" in images
    assert "held now: immich-ml 10,726 MiB, frigate 1,900 MiB, not attributed 300 MiB, free 2,434 MiB" in images


def test_it_follows_the_exporter_and_states_when_that_is_gone(scene, tmp_path):
    scene.sample(reading(**CALM))

    async def act(page, server):
        scene.reading = reading(**GROWN)
        await page.wait_for("document.body.innerText.includes('10,726')")
        server.shutdown()
        server.server_close()
        await page.wait_for("document.getElementById('status').textContent.startsWith('The exporter gives no answer')")
        return await text(page)

    assert "10,726" in in_page(scene, tmp_path, act)


def test_who_types_the_operators_key_once_has_the_page_that_follows_the_exporter(scene, tmp_path):
    incident(scene)
    store = LocalKeys(tmp_path / "state")
    key = keys.ensure_operator(store)

    async def act(page, _server):
        scene.reading = reading(**CALM | {"frigate": 123})
        await page.wait_for("document.body.innerText.includes('123')")
        asked = len(page.of("Fetch.authRequired"))
        keys.rotate(store, OPERATOR)
        keys.revoke(store, OPERATOR, only_old=True)
        scene.reading = reading(**CALM | {"frigate": 456})
        await page.wait_for("document.getElementById('status').textContent.includes('(HTTP 401)')")
        return asked, await text(page)

    operator_keys = OperatorKeys(store.file, "a test")
    asked, words = in_page(scene, tmp_path, act, operator_keys=operator_keys, password=key)
    assert asked == 1
    assert "immich-ml" in words
    assert "456" not in words


def test_what_is_not_recorded_any_more_is_not_shown_as_now(scene, tmp_path):
    scene.sample(reading(**CALM), models={"chat": "ready"}, times=20)
    scene.now += 600
    scene.sample(reading(**CALM), times=20)

    async def act(page, _server):
        return await text(page), await page.evaluate("document.querySelector('svg path').getAttribute('d')")

    words, path = in_page(scene, tmp_path, act)
    assert "Unknown: nothing is recorded since" in words
    assert path.count("M") == 2


def test_a_program_without_a_promise_is_named_as_the_largest_excess(scene, tmp_path):
    scene.sample(reading(**CALM, ffmpeg=9000))

    async def act(page, _server):
        return await text(page)

    words = in_page(scene, tmp_path, act)
    assert "2,120 MiB free now; ffmpeg holds 9,000 MiB without a promise" in words


def test_what_is_unknown_is_shown_as_that(scene, tmp_path):
    scene.now = time.time()
    scene.sample(SILENT, models=None)

    async def act(page, _server):
        return await text(page)

    words = in_page(scene, tmp_path, act)
    assert "what is free is unknown" in words
    assert "nvidia-smi did not respond within 1 s." in words
    assert "llama-swap does not answer." in words
    assert re.search(r"immich-ml\s+\?\s+2,100", words)


def test_a_llama_swap_that_is_not_read_is_not_one_without_models_and_failures(scene, tmp_path):
    scene.options["find_llama_swap"] = None
    scene.restart()
    scene.now = time.time()
    scene.sample(reading(**CALM))

    async def act(page, _server):
        return await text(page)

    words = in_page(scene, tmp_path, act)
    assert words.count("Not read: no llama-swap is configured for this exporter.") == 2
    assert "None" not in words


def test_a_name_from_outside_is_text_and_nothing_comes_from_another_place(scene, tmp_path):
    name = "<img src=x onerror=document.title='taken'><script>document.title='taken'</script>"
    scene.sample(reading(**{name: 600}))

    async def act(page, server):
        requests = {one["request"]["url"] for one in page.of("Network.requestWillBeSent")}
        root = f"http://127.0.0.1:{server.server_port}/"
        problems = [one["entry"]["text"] for one in page.of("Log.entryAdded") if "favicon" not in str(one)]
        return (
            await text(page),
            await page.evaluate("document.title"),
            {one.removeprefix(root) for one in requests},
            problems,
        )

    words, title, requests, problems = in_page(scene, tmp_path, act)
    assert name in words
    assert title == "corral: who holds the card"
    assert {one.partition("?")[0] for one in requests} <= {"", "card.json", "records", "favicon.ico"}
    assert problems == []


def test_a_script_that_was_put_into_the_page_does_not_run(scene, tmp_path):
    scene.sample()

    async def act(page, _server):
        await page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {text: 'taken = 1'}))"
        )
        return await page.evaluate("typeof taken"), str(page.of("Log.entryAdded"))

    kind, log = in_page(scene, tmp_path, act)
    assert kind == "undefined"
    assert "Content Security Policy" in log


def test_on_a_phone_the_page_is_no_wider_than_the_window(scene, tmp_path):
    incident(scene)

    async def act(page, _server):
        return await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")

    assert in_page(scene, tmp_path, act, width=360, height=740) == [360, 360]


@pytest.mark.parametrize(("scheme", "background"), [("light", (255, 255, 255)), ("dark", (22, 24, 28))])
def test_it_is_as_dark_as_its_reader_wishes_and_text_has_contrast(scene, tmp_path, scheme, background):
    incident(scene)

    async def act(page, _server):
        colours = (
            "['body', '.bad', '.dim', '.remark'].map((one) => getComputedStyle(document.querySelector(one)).color)"
        )
        return await page.picture(), await page.evaluate(colours)

    picture, colours = in_page(scene, tmp_path, act, scheme=scheme)
    assert first_pixel(picture) == background
    for colour in colours:
        found = tuple(map(int, re.findall(r"\d+", colour)[:3]))
        assert contrast(found, background) >= 4.5, (colour, background)


def test_a_screen_reader_has_each_table_with_its_headings(scene, tmp_path):
    incident(scene)

    async def act(page, _server):
        return {role: await page.names(role) for role in ("table", "columnheader", "rowheader", "heading")}

    found = in_page(scene, tmp_path, act)
    assert sorted(found["table"]) == ["Failed requests", "Holders of t4"]
    assert "held MiB" in found["columnheader"]
    assert any("immich-ml" in one for one in found["rowheader"])
    assert sorted(found["heading"]) == ["Failed requests of the last hour", "Models", "t4: 15,360 MiB"]


def test_a_model_that_yielded_is_listed_once_with_its_reason(scene, tmp_path):
    taken = [(Yielded("t4", "chat", "tenant-waits", "immich-ml", 1, 2, 61.0),)]
    scene.options["take_yields"] = lambda: taken.pop() if taken else ()
    scene.restart()
    scene.sample(times=4)

    async def act(page, _server):
        return {role: await page.names(role) for role in ("table", "cell")}

    found = in_page(scene, tmp_path, act)
    assert "Models that were unloaded for a neighbour" in found["table"]
    assert found["cell"].count("a pod of immich-ml waited") == 1


def test_the_page_is_never_stored_nor_framed(scene):
    scene.sample()
    with (
        serving(("127.0.0.1", 0), NoMetrics(), dict, scene.recorder) as server,
        urlopen(f"http://127.0.0.1:{server.server_port}/") as answer,
    ):
        headers = answer.headers
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


def first_pixel(picture):
    """Red, green and blue of the first pixel of a PNG: no filter changes it (https://www.w3.org/TR/png-3/#9Filters)."""
    data, at = b"", 8
    while at < len(picture):
        size, kind = int.from_bytes(picture[at : at + 4]), picture[at + 4 : at + 8]
        data += picture[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    return tuple(zlib.decompress(data)[1:4])


def contrast(one, other):
    """The ratio of two colours (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""

    def luminance(colour):
        parts = [value / 255 for value in colour]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)

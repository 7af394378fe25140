"""What a client of a vision model can rely on, and how long this machine takes for it."""

from __future__ import annotations

import asyncio
import json
import ssl
import statistics
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from corral.bench.exchange import Client, Sample
from corral.bench.exchange import described as described_outcome
from corral.contract import load
from corral.engine.log_lines import Layers
from corral.errors import CannotRun
from corral.smoke import checks, sse
from corral.smoke.endpoint import Endpoint, Reply, TransportError
from corral.smoke.images import RGB, data_url, solid_png
from corral.smoke.questions import IMAGES_PROMPT, MAX_TOKENS

ORDERS: Final = (
    ("red", "green", "blue", "yellow", "white", "black", "red", "green", "blue", "yellow"),
    ("white", "black", "red", "green", "blue", "yellow", "black", "white", "green", "red"),
)
"""Ten images, twice: no two of them have the same colours in both, so that every other order changes an answer."""
SIDES_PX: Final = (256, 896)
COUNTS: Final = (1, 5, 10)
"""Images of a request whose time is measured."""
WARM: Final = 5
"""Answers of a loaded model whose median is shown: too few for a percentile."""
COLD: Final = 3
"""Loads, likewise."""
MOST_IMAGES: Final = 64
"""Images that a request is tried with: more are not of interest, and take an engine minutes."""
UNLOADS: Final = 1 + COLD * (1 + len(SIDES_PX))
"""How often the model is unloaded."""

_PATH: Final = "/v1/chat/completions"
_MOST_NAMED: Final = 32
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "colours": {
            "type": "array",
            "items": {"enum": sorted(RGB)},
            "minItems": len(ORDERS[0]),
            "maxItems": len(ORDERS[0]),
        }
    },
    "required": ["colours"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Subject:
    """A vision model of a local stack, and how it is reached.

    Attributes:
        root: of the front door.
        key: of the operator, for the front door; empty: none is required.
        trust: of its certificate.
        engine_key: of the engines.
        model: its id.
        thinks: whether it may reason before it answers.
        context: tokens of a slot.
        images_per_request: as its file has it; None: it states none.
        weights: its file.
        unload: unloads it.
        layers: where its layers are, by the log of its engine.
    """

    root: str
    key: str = field(repr=False)
    trust: ssl.SSLContext | None
    engine_key: str = field(repr=False)
    model: str
    thinks: bool
    context: int
    images_per_request: int | None
    weights: Path
    unload: Callable[[], None]
    layers: Callable[[], Layers]


@dataclass(frozen=True)
class Found:
    """What was found.

    Attributes:
        promises: what a client relies on; the same each time.
        measured: what this machine took; another each time.
        broken: which promises are not kept, as sentences.
    """

    promises: dict[str, Any]
    measured: dict[str, Any]
    broken: tuple[str, ...]


async def find(subject: Subject, *, limit_s: float, report: Callable[[str], None] = lambda _: None) -> Found:
    """Send what a client sends; each answer has *limit_s* seconds, a load included.

    Raises:
        CannotRun: the model cannot be loaded, or an answer is missing or of another form.
    """
    async with _asking(subject, limit_s) as asking:
        try:
            report(f"{subject.model}: what is answered while it is loaded ...")
            health = await asking.health()
            layers = subject.layers()  # now: later lines push those of the load out of the log
            report(f"{subject.model}: {len(ORDERS[0])} images in order ...")
            order = [await asking.order(side_px, shown) for side_px in SIDES_PX for shown in ORDERS]
            stream, schema = await asking.stream(), await asking.schema()
            report(f"{subject.model}: images until its context refuses ...")
            tokens = {"text": await asking.prompt_tokens(0, SIDES_PX[0])}
            an_image = {str(side_px): await asking.image_tokens(side_px) for side_px in SIDES_PX}
            most = {str(side_px): await asking.most_images(side_px, an_image[str(side_px)]) for side_px in SIDES_PX}
            refusal = await asking.refusal(most)
            report(f"{subject.model}: {COLD} loads, {WARM} answers of each kind ...")
            measured = await asking.times(most)
        except (TransportError, TimeoutError, ValueError, LookupError, TypeError) as error:
            why = f"no answer within {limit_s:g} s" if isinstance(error, TimeoutError) else str(error)
            raise CannotRun(
                f"{subject.model} gave no answer that could be read: {why}.", next_step=f"corral why {subject.model}"
            ) from None
    promises = {
        "layers": {"on_card": layers.on_card, "of": layers.total, "projector": layers.projector, "why": layers.why},
        "health": health,
        "request": {"method": "POST", "path": _PATH, "content": _form()},
        "order": order,
        "stream": stream,
        "schema": schema,
        "prompt_tokens": {**tokens, "an_image": an_image},
        "images_per_request": {**most, "tried_up_to": MOST_IMAGES},
        "refusal": refusal,
    }
    return Found(promises, measured, tuple(_broken(promises, subject.images_per_request)))


def _broken(promises: Mapping[str, Any], images_per_request: int | None) -> list[str]:
    found = []
    if promises["layers"]["on_card"] is None:
        found.append(f"which of its layers are on the card is not known: {promises['layers']['why']}")
    if promises["health"] != {"while_loading": 503, "loaded": 200}:
        found.append(f"/health is {promises['health']}, and not 503 while it is loaded and 200 after")
    for one in promises["order"]:
        if one["named"] is None:
            if one["side_px"] == SIDES_PX[0]:
                found.append(f"{len(one['shown'])} images of {one['side_px']} pixels do not fit into its context")
        elif one["named"] != one["shown"]:
            found.append(
                f"of images {', '.join(one['shown'])} of {one['side_px']} pixels it names "
                f"{', '.join(one['named']) or 'none'}"
            )
    if promises["stream"] != {"named": list(ORDERS[0]), "done": True}:
        found.append("a streamed answer names them otherwise, or has no [DONE]")
    if promises["schema"]["named"] != list(ORDERS[0]):
        found.append("an answer that a JSON schema binds is no JSON, or names them otherwise")
    largest = promises["images_per_request"][str(SIDES_PX[-1])]
    if images_per_request is not None and largest < min(images_per_request, MOST_IMAGES):
        found.append(
            f"images_per_request is {images_per_request}, and its context takes {largest} of {SIDES_PX[-1]} pixels"
        )
    return found


def _form() -> list[Any]:
    """The content of a request, with the bytes of its images left out."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}
    return [image, "… one for each image, in their order", {"type": "text", "text": IMAGES_PROMPT}]


@cache
def _url(colour: str, side_px: int) -> str:
    return data_url(solid_png(colour, side_px))


@dataclass(frozen=True)
class _Asking:
    subject: Subject
    through: Endpoint
    streams: Client
    limit_s: float

    def body(self, colours: Sequence[str], side_px: int, **more: Any) -> dict[str, Any]:
        images = [{"type": "image_url", "image_url": {"url": _url(colour, side_px)}} for colour in colours]
        content = [*images, {"type": "text", "text": IMAGES_PROMPT}]
        body = {"model": self.subject.model, "messages": [{"role": "user", "content": content}]}
        plain = {"temperature": 0, "max_tokens": MAX_TOKENS, "cache_prompt": False}
        unthinking = {"chat_template_kwargs": {"enable_thinking": False}} if self.subject.thinks else {}
        return body | plain | unthinking | more

    async def reply(self, body: dict[str, Any]) -> Reply:
        async with asyncio.timeout(self.limit_s):
            return await self.through.request(_PATH, body)

    async def answer(self, body: dict[str, Any]) -> tuple[str, int] | None:
        """The content of the answer and the tokens of the prompt; None: the context is too small for it."""
        reply = await self.reply(body)
        if is_too_long(reply):
            return None
        return content_of(reply)

    async def order(self, side_px: int, shown: Sequence[str]) -> dict[str, Any]:
        answer = await self.answer(self.body(shown, side_px))
        return {"side_px": side_px, "shown": list(shown), "named": None if answer is None else named(answer[0])}

    async def stream(self) -> dict[str, Any]:
        reply = await self.reply(self.body(ORDERS[0], SIDES_PX[0], stream=True))
        if reply.status != 200:
            return {"named": [], "done": False}
        read = sse.read(reply.body)
        return {"named": named(read.content), "done": read.done and read.error is None}

    async def schema(self) -> dict[str, Any]:
        form = {"type": "json_schema", "json_schema": {"name": "colours", "strict": True, "schema": _SCHEMA}}
        answer = await self.answer(self.body(ORDERS[0], SIDES_PX[0], response_format=form))
        return {"form": "response_format.json_schema.schema", "named": colours_in(answer[0] if answer else "")}

    async def prompt_tokens(self, images: int, side_px: int) -> int | None:
        """Tokens of a prompt with so many images; None: they do not fit."""
        shown = [ORDERS[0][at % len(ORDERS[0])] for at in range(images)]
        answer = await self.answer(self.body(shown, side_px, max_tokens=1))
        return None if answer is None else answer[1]

    async def image_tokens(self, side_px: int) -> int | None:
        """Tokens that one image adds to a prompt; None: not even one fits."""
        none, one = await self.prompt_tokens(0, side_px), await self.prompt_tokens(1, side_px)
        return None if none is None or one is None else one - none

    async def most_images(self, side_px: int, tokens: int | None) -> int:
        """Images of a request up to which it is answered: so many are, and one more is not, up to ``MOST_IMAGES``."""
        if not tokens or tokens < 0:
            return 0
        many = min(MOST_IMAGES, self.subject.context // tokens)
        while many and await self.prompt_tokens(many, side_px) is None:
            many -= 1
        while many < MOST_IMAGES and await self.prompt_tokens(many + 1, side_px) is not None:
            many += 1
        return many

    async def refusal(self, most: Mapping[str, int]) -> dict[str, Any] | None:
        """How a request with one image more is refused; None: none was."""
        for side_px in SIDES_PX:
            if (many := most[str(side_px)]) < MOST_IMAGES:
                shown = [ORDERS[0][at % len(ORDERS[0])] for at in range(many + 1)]
                reply = await self.reply(self.body(shown, side_px, max_tokens=1))
                return {"status": reply.status, "type": error_type(reply)}
        return None

    async def health(self) -> dict[str, Any]:
        subject = self.subject

        def engine_at(proxy: str) -> Endpoint:
            return Endpoint(proxy, api_key=subject.engine_key)

        async with asyncio.timeout(self.limit_s):
            replies = await load.watch(self.through, engine_at, subject.model, self.unload, subject.weights)
        if replies is None:
            raise ValueError("the load was over before it was observed")
        return {"while_loading": replies.alone[0].status, "loaded": replies.after[0].status}

    async def unload(self) -> None:
        await asyncio.to_thread(self.subject.unload)

    async def times(self, most: Mapping[str, int]) -> dict[str, Any]:
        """Seconds of this machine; what the context refuses is left out."""
        boots = [await self.boot() for _ in range(COLD)]
        rows = []
        for side_px in SIDES_PX:
            if not most[str(side_px)]:
                continue
            body = self.body(ORDERS[0][:1], side_px)
            rows.append(_row("cold", side_px, 1, [await self.cold(body) for _ in range(COLD)]))
            for count in COUNTS:
                if count > most[str(side_px)]:
                    continue
                body = self.body(ORDERS[0][:count], side_px)
                rows.append(_row("whole", side_px, count, [await self.whole(body) for _ in range(WARM)]))
                rows += await self.streamed(body, side_px, count)
        return {"boot": _spread(boots), "answers": rows}

    async def boot(self) -> float:
        """Seconds from a request for the unloaded model's /health, for which llama-swap loads it, to 200."""
        await self.unload()
        started = time.perf_counter()
        async with asyncio.timeout(self.limit_s):
            reply = await self.through.request(f"/upstream/{self.subject.model}/health")
        if reply.status != 200:
            raise ValueError(f"it cannot be loaded: HTTP {reply.status}")
        return time.perf_counter() - started

    async def cold(self, body: dict[str, Any]) -> float:
        await self.unload()
        return await self.whole(body)

    async def whole(self, body: dict[str, Any]) -> float:
        started = time.perf_counter()
        reply = await self.reply(body)
        took = time.perf_counter() - started
        content_of(reply)
        return took

    async def streamed(self, body: dict[str, Any], side_px: int, count: int) -> list[dict[str, Any]]:
        samples = [await self._streamed(body) for _ in range(WARM)]
        first = [one.first - one.sent for one in samples if one.first is not None]
        return [
            _row("first of stream", side_px, count, first),
            _row("end of stream", side_px, count, [one.ended - one.sent for one in samples]),
        ]

    async def _streamed(self, body: dict[str, Any]) -> Sample:
        sample = await self.streams.send(body | {"stream": True, "stream_options": {"include_usage": True}})
        if not sample.is_ok:
            raise ValueError(f"a streamed answer is not whole: {described_outcome(sample.outcome)}")
        return sample


@asynccontextmanager
async def _asking(subject: Subject, limit_s: float) -> AsyncIterator[_Asking]:
    shared: dict[str, Any] = {"api_key": subject.key, "trust": subject.trust}
    async with (
        Endpoint(subject.root, **shared) as through,
        Client(subject.root, **shared, silence_s=limit_s, timeout_s=limit_s) as streams,
    ):
        yield _Asking(subject, through, streams, limit_s)


def named(answer: str) -> list[str]:
    """The colours that *answer* names, in its order."""
    return [colour.lower() for colour in checks.COLOURS.findall(answer)][:_MOST_NAMED]


def colours_in(text: str) -> list[str] | None:
    """The colours of the JSON that the schema binds; None: it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    colours = found.get("colours") if isinstance(found, dict) else None
    if not isinstance(colours, list) or not all(isinstance(one, str) and one in RGB for one in colours):
        return None
    return colours[:_MOST_NAMED]


def content_of(reply: Reply) -> tuple[str, int]:
    """Content of a chat completion, and the tokens of its prompt.

    Raises:
        ValueError: it is none.
    """
    if reply.status != 200:
        raise ValueError(f"HTTP {reply.status}, {error_type(reply) or 'without a reason'}")
    try:
        document = json.loads(reply.body)
        content = document["choices"][0]["message"].get("content") or ""
        tokens = document["usage"]["prompt_tokens"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError("it is no chat completion") from None
    if not isinstance(content, str) or type(tokens) is not int or tokens < 0:
        raise ValueError("it is no chat completion")
    return content, tokens


def error_type(reply: Reply) -> str | None:
    """The type that an error has in its body, 80 characters at most; None: it has none."""
    try:
        kind = json.loads(reply.body)["error"]["type"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return kind[:80] if isinstance(kind, str) else None


def is_too_long(reply: Reply) -> bool:
    """Whether the prompt was refused because the context is too small for it."""
    return reply.status == 400 and error_type(reply) == "exceed_context_size_error"


def _row(kind: str, side_px: int, images: int, seconds: Sequence[float]) -> dict[str, Any]:
    return {"kind": kind, "side_px": side_px, "images": images, **_spread(seconds)}


def _spread(seconds: Sequence[float]) -> dict[str, Any]:
    """The median of these few, and the least and the most of them: no percentile of what is to be expected."""
    rounded = {"median": statistics.median(seconds), "least": min(seconds), "most": max(seconds)}
    return {"n": len(seconds), **{f"{name}_seconds": round(value, 4) for name, value in rounded.items()}}

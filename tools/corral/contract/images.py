"""OpenAI's SDK: images."""

from __future__ import annotations

from collections.abc import Sequence

from corral.contract.check import check, require
from corral.contract.errors import require_refusal
from corral.contract.reach import Way
from corral.smoke.images import data_url, solid_png
from corral.smoke.questions import IMAGE_ORDERS, IMAGE_PROMPT

_NOWHERE = "http://127.0.0.1:9/image.png"  # the port of discard: no server listens there


async def _named(way: Way, urls: Sequence[str]) -> str:
    content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    answer = await way.openai.chat.completions.create(
        model=way.model,
        messages=[{"role": "user", "content": [*content, {"type": "text", "text": IMAGE_PROMPT}]}],
        max_tokens=64,
        temperature=0,
    )
    return (answer.choices[0].message.content or "").lower()


@check(of="vision")
async def image_order(way: Way) -> None:
    """Two images as `data:` URLs: they are named in their order, both ways round."""
    for colours in IMAGE_ORDERS.values():
        answer = await _named(way, [data_url(solid_png(colour)) for colour in colours])
        found = sorted(colours, key=answer.find)
        require(all(colour in answer for colour in colours), "a colour is missing")
        require(found == list(colours), "they are named in another order")


@check(of="vision")
async def image_broken(way: Way) -> None:
    """Bytes that are no image: 400."""
    await require_refusal(_named(way, ["data:image/png;base64,AAAA"]), 400)


@check(of="vision")
async def image_remote(way: Way) -> None:
    """An image at an `http:` URL: it is refused with 400, and the server requests nothing."""
    await require_refusal(_named(way, [_NOWHERE]), 400, "the engine itself requests that URL")


@check(unless="vision")
async def image_to_text_model(way: Way) -> None:
    """An image for a model without vision: 400."""
    await require_refusal(_named(way, [data_url(solid_png("red", 16))]), 400)

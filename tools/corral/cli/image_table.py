"""Whether vision models have room for their images, as `corral lock` and `corral plan` show and refuse it."""

from __future__ import annotations

from corral import output
from corral.errors import Refused
from corral.lock import image_room
from corral.lock.image_room import Room, State


def show(found: list[Room]) -> None:
    """Print *found* to stdout, where there is something."""
    if found:
        title = f"Images of {image_room.SIDE_PX} pixels a side in one request"
        output.table(image_room.COLUMNS, [one.row() for one in found], title=title)


def sentence(one: Room) -> str:
    """*one* as a line."""
    return f"{one.model}: {one.images} images a request in context {one.context:,}: {one.state}, {one.reason}"


def require_room(found: list[Room]) -> None:
    """No model of *found* has less context than its images take.

    Raises:
        Refused: one has; every one is named.
    """
    lines = [
        f"{one.model}: {one.images} images of {image_room.SIDE_PX} pixels a side take {one.tokens_an_image} tokens "
        f"each, with {image_room.TEXT_TOKENS} of text {one.needed:,}, more than context {one.context:,}: {one.reason}."
        for one in found
        if one.state is State.TOO_SMALL
    ]
    if lines:
        step = "Change context, image_max_tokens or images_per_request in the model's file, then: corral lock"
        raise Refused("\n".join(lines), next_step=step)

"""The clients of the front door, and what the key of each permits."""

from __future__ import annotations

from pydantic import BaseModel, Field, field_validator

from corral.catalog.forms import STRICT, Id, Text
from corral.keys import GATEWAY, MONITOR, OPERATOR


class Client(BaseModel):
    """A program that sends requests with a key of its own, and what that key permits."""

    model_config = STRICT

    models: tuple[Id, ...] | None = Field(
        None, min_length=1, strict=False, description="ids of the models that it may use; all when left out"
    )
    requests: int = Field(gt=0, le=10_000, description="requests that it may have under way at once")
    description: Text | None = Field(None, description="what it is, for people")

    @field_validator("models")
    @classmethod
    def _sorted_without_repeats(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value and (repeated := next((one for one in value if value.count(one) > 1), None)):
            raise ValueError(f"names {repeated} twice.")
        return tuple(sorted(value)) if value else value


class Clients(BaseModel):
    """The clients of the front door; `corral keys` gives each its key."""

    model_config = STRICT

    clients: dict[Id, Client] = Field(description="every client, by name")

    @field_validator("clients")
    @classmethod
    def _leaves_corrals_own_out(cls, value: dict[str, Client]) -> dict[str, Client]:
        if OPERATOR in value:
            raise ValueError(f"must not name {OPERATOR}: that is the operator's own key, which may do everything.")
        if MONITOR in value:
            raise ValueError(f"must not name {MONITOR}: that is the key of the exporters of cards.")
        if GATEWAY in value:
            raise ValueError(f"must not name {GATEWAY}: that is the key of the stack's own gateway.")
        return value

"""The operator's own golden questions: ``golden.yaml`` of the catalog.

They change nothing that is served, so the file is no source of the lock.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from corral.catalog.forms import ID_PATTERN

_Strict = ConfigDict(extra="forbid", frozen=True, strict=True)
_Name = Annotated[str, StringConstraints(pattern=ID_PATTERN, max_length=63)]


class Message(BaseModel):
    """One message of a conversation."""

    model_config = _Strict

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, StringConstraints(min_length=1)] = Field(description="its text")


class GoldenQuestion(BaseModel):
    """One conversation whose next answer must stay as it is."""

    model_config = _Strict

    messages: tuple[Message, ...] = Field(min_length=1, strict=False, description="the conversation; the user ends it")
    images: tuple[Literal["red", "blue"], ...] = Field(
        (), max_length=32, strict=False, description="generated images of these colours, before the text of its end"
    )
    json_schema: dict[str, Any] | None = Field(
        None,
        alias="schema",
        description="JSON schema of an object: the answer is bound to it, and each of its fields must stay the same",
    )
    models: tuple[_Name, ...] | None = Field(
        None, min_length=1, strict=False, description="ids of the models that are asked; all that can answer by default"
    )

    @model_validator(mode="after")
    def _the_user_ends_it(self) -> Self:
        if self.messages[-1].role != "user":
            raise ValueError("messages must end with one of the user: the model's answer follows it.")
        return self

    @field_validator("json_schema")
    @classmethod
    def _is_of_an_object(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None and (value.get("type") != "object" or not isinstance(value.get("properties"), dict)):
            raise ValueError("schema must have type: object, and properties: fields without a name cannot be compared.")
        return value


class Golden(BaseModel):
    """Golden questions, beside those that corral has."""

    model_config = _Strict

    questions: dict[_Name, GoldenQuestion] = Field(min_length=1, description="every question, by name")

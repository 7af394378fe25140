"""What the operator wants of one card: its memory, and everything that was promised a part of it."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from corral.catalog.forms import (
    CAPABILITY_PATTERN,
    CONDITION_PATTERN,
    SELECTOR_PATTERN,
    STRICT,
    UNIT_PATTERN,
    VARIABLE_PATTERN,
    Id,
)

_Variable = Annotated[str, StringConstraints(pattern=VARIABLE_PATTERN)]
_Condition = Annotated[str, StringConstraints(pattern=CONDITION_PATTERN)]


class Expectations(BaseModel):
    """What the settings of a tenant's pods must be, so that it keeps to its budget."""

    model_config = STRICT

    env: dict[_Variable, _Condition] = Field(
        min_length=1, description='environment variables, each with a condition: ">0", ">=600", "=text"'
    )


class Tenant(BaseModel):
    """Something else that uses the card's memory."""

    model_config = STRICT

    budget_mib: int = Field(gt=0, description="MiB that it is promised")
    namespace: Id | None = Field(None, description="its Kubernetes namespace; any when left out")
    selector: Annotated[str, StringConstraints(pattern=SELECTOR_PATTERN)] | None = Field(
        None, description="label selector of its pods, e.g. app=immich-server; all of its namespace when left out"
    )
    unit: Annotated[str, StringConstraints(pattern=UNIT_PATTERN, max_length=255)] | None = Field(
        None, description="on a machine without Kubernetes: the systemd service or slice of its processes"
    )
    expects: Expectations | None = Field(
        None, description="settings without which it does not keep to its budget; needs namespace and selector"
    )

    @model_validator(mode="after")
    def _pods_are_named(self) -> Self:
        if self.expects and not (self.namespace and self.selector):
            raise ValueError("expects needs namespace and selector: without them its pods are not known.")
        return self

    @model_validator(mode="after")
    def _is_pods_or_a_unit(self) -> Self:
        if self.unit and (self.namespace or self.selector):
            raise ValueError(
                "unit is for a machine without Kubernetes, namespace and selector are for a cluster: in a cluster "
                "remove unit, otherwise namespace and selector."
            )
        return self


class Yield(BaseModel):
    """When idle models of a card are unloaded for its other tenants."""

    model_config = STRICT

    floor_mib: int = Field(gt=0, description="with less than this free, the longest idle model is unloaded")
    idle_seconds: int = Field(
        60, gt=0, le=86_400, description="how long a model must not have answered before it may be unloaded"
    )


class Card(BaseModel):
    """One physical GPU, and everything that was promised a part of it."""

    model_config = STRICT | ConfigDict(serialize_by_alias=True)

    vram_mib: int = Field(gt=0, description="MiB of memory on the card")
    reserve_mib: int = Field(512, ge=0, description="MiB that no model or tenant may use")
    compute_capability: Annotated[str, StringConstraints(pattern=CAPABILITY_PATTERN)] | None = Field(
        None, description='NVIDIA compute capability in quotes, e.g. "7.5"'
    )
    node: Id | None = Field(None, description="the Kubernetes node that it sits in")
    tenants: dict[Id, Tenant] = Field(default_factory=dict, description="everything else on the card, by name")
    yields: Yield | None = Field(
        None, alias="yield", description="whether idle models are unloaded when a tenant needs memory; left out: never"
    )

    @model_validator(mode="after")
    def _reserve_is_on_the_card(self) -> Self:
        if self.reserve_mib >= self.vram_mib:
            raise ValueError(f"reserve_mib is {self.reserve_mib}: that is all of the card's {self.vram_mib} MiB.")
        return self

    @model_validator(mode="after")
    def _floor_can_be_reached(self) -> Self:
        promised = sum(one.budget_mib for one in self.tenants.values())
        if self.yields and self.yields.floor_mib > self.vram_mib - promised:
            left = self.vram_mib - promised
            raise ValueError(
                f"yield.floor_mib is {self.yields.floor_mib}: {left} MiB are free when the tenants have their budgets, "
                f"and no model is loaded: {f'write at most {left}' if left > 0 else 'leave yield out'}."
            )
        return self

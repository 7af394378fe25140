"""What the operator wants of one model.

These classes, and those of ``source``, ``vllm_settings``, ``card``, ``clients`` and ``images``, are the only definition
of the catalog's keys and of their defaults: ``corral.lock.schemas`` generates the editors' JSON schemas from them, and
the lock holds every key, defaults filled.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, StringConstraints, ValidationInfo, field_validator, model_validator

from corral.catalog.forms import ALIAS_PATTERN, STRICT, Id, Text
from corral.catalog.source import ONE_FILE, Source
from corral.catalog.vllm_settings import Vllm

DEFAULT_IMAGE_TOKENS = 1024
DEFAULT_VERSION = "v1"
_MOST_FLAGS = 300  # the engine has fewer; for each unknown name the nearest one is searched

_Alias = Annotated[str, StringConstraints(pattern=ALIAS_PATTERN, max_length=100)]
_Modality = Literal["text", "image"]
_Reasoning = Literal["on", "off", "auto"]
Task = Literal["chat", "embedding", "rerank"]
Engine = Literal["llama.cpp", "vllm"]


class Smoke(BaseModel):
    """A question with a known answer; of a model without answers, three texts of which two are closer."""

    model_config = STRICT

    prompt: Text | None = Field(
        None, description="what `corral smoke` sends; a general question when left out; the query of `near` and `far`"
    )
    expect: Text | None = Field(None, description="the exact answer of a chat, white space at the ends aside")
    near: Text | None = Field(
        None, description="task embedding or rerank: a text that must be closer to `prompt` than `far` is"
    )
    far: Text | None = Field(None, description="task embedding or rerank: the other text")

    @model_validator(mode="after")
    def _is_a_question(self) -> Self:
        if self.near is not None or self.far is not None:
            if None in (self.prompt, self.near, self.far):
                raise ValueError("near and far need each other, and prompt: near must be the closer one to it.")
            if len({self.prompt, self.near, self.far}) < 3:
                raise ValueError("prompt, near and far must be three different texts.")
        if self.prompt is None and self.expect is None:
            raise ValueError("must have prompt, expect, or both.")
        if self.expect is not None and not self.expect.strip():
            raise ValueError("expect must not be blank: no answer would ever match.")
        return self


class DeclaredVram(BaseModel):
    """The operator's own figure for what a model takes: where the engine cannot predict it, or where it takes more."""

    model_config = STRICT

    declared_mib: int = Field(
        gt=0, le=16_777_216, description="MiB on the card; never less than what the engine predicts"
    )
    why: Text = Field(description="where the figure is from, e.g. nvidia-smi on 2026-11-02, b11549")

    @property
    def bytes(self) -> int:
        """The figure in bytes."""
        return self.declared_mib << 20

    @field_validator("why")
    @classmethod
    def _has_an_origin(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must name the origin of the figure.")
        return value


class UnsafeFlag(BaseModel):
    """A flag that ``args`` does not take, with the operator's reason to run it nevertheless."""

    model_config = STRICT

    value: Any = Field(description="as in `args`: true or false, a number, text")
    why: Text = Field(description="the reason, a sentence; `corral plan` shows it in red")

    @field_validator("why")
    @classmethod
    def _is_a_sentence(cls, value: str) -> str:
        if len(value.split()) < 3 or not value.isprintable():
            raise ValueError("must be a sentence on one line: why this model cannot do without the flag.")
        return value


class Draft(BaseModel):
    """A small model of the same vocabulary that proposes tokens, which the model verifies at once."""

    model_config = STRICT

    source: Source


def _is_none(value: object) -> bool:
    return value is None  # a lock without it has no such key


class Adapter(BaseModel):
    """A LoRA adapter: one that is always applied, or, with a name, a version of one that requests choose."""

    model_config = STRICT

    source: Source
    scale: float = Field(1, gt=0, le=100, description="how strongly it is applied")
    name: Id | None = Field(
        None, exclude_if=_is_none, description="requests for MODEL:NAME use it, and no others; left out: all do"
    )
    version: Id | None = Field(
        None,
        exclude_if=_is_none,
        description="of several files of one name; the first serves until `corral adapters swap` (default: v1)",
    )
    smoke: Smoke | None = Field(None, exclude_if=_is_none, description="what `corral smoke` asks MODEL:NAME")

    @property
    def id(self) -> str:
        """NAME@VERSION, which no other adapter of its model has; empty where it is always applied."""
        return f"{self.name}@{self.version or DEFAULT_VERSION}" if self.name else ""

    @model_validator(mode="after")
    def _has_a_name(self) -> Self:
        if self.name is None and (extra := [key for key in ("version", "smoke") if getattr(self, key) is not None]):
            raise ValueError(f"has no name, so it is always applied: leave {', '.join(extra)} out, or name it.")
        if self.smoke and self.smoke.near is not None:
            raise ValueError("smoke.near and smoke.far are for models of another task; an adapter's answer has expect.")
        return self


class LatencyBudget(BaseModel):
    """How fast a model must answer one of its consumers, and what that consumer sends.

    ``requests_at_once`` may be more than ``parallel``: the rest waits in the engine, and ``p95_seconds`` includes it.
    """

    model_config = STRICT

    consumer: Id = Field(description="who relies on it; a name in clients.yaml, where there is one")
    prompt_tokens: int = Field(gt=0, le=16_777_216, description="most tokens of a prompt, with its images")
    answer_tokens: int = Field(gt=0, le=16_777_216, description="most tokens of an answer, with its reasoning")
    p95_seconds: float = Field(
        gt=0, le=3600, description="seconds to the end of the answer that 95 of 100 requests may take, waiting included"
    )
    requests_at_once: int = Field(
        1, gt=0, le=10_000, description="requests under way at a time; those beyond `parallel` wait for a slot"
    )
    cold: Literal["allowed", "excluded"] = Field(
        "allowed", description="requests that wait for a load: allowed, and as fast as the others, or excluded"
    )


class Model(BaseModel):
    """One model of the catalog."""

    model_config = STRICT

    engine: Engine = Field(
        "llama.cpp",
        exclude_if=lambda value: value == "llama.cpp",  # a lock without such a model has no such key
        description="what serves it: llama.cpp, loaded for a request; or vllm, which stays loaded",
    )
    source: Source
    card: Id = Field("", description="the card it runs on: the name of a file in cards/")
    cards: tuple[Id, ...] = Field(
        (),
        strict=False,
        exclude_if=lambda value: not value,  # a lock without such a model has no such key
        description="in place of card: those it may run on, the preferred one first; `corral lock` places it",
    )
    vllm: Vllm | None = Field(
        None, exclude_if=lambda value: value is None, description="how vLLM serves it, with engine: vllm"
    )
    task: Task = Field("chat", description="what requests it serves: chat, /v1/embeddings, or /v1/rerank")
    context: int = Field(gt=0, le=16_777_216, description="tokens per request slot")
    modalities: tuple[_Modality, ...] = Field(
        min_length=1, strict=False, description="what a request may hold; text always"
    )
    parallel: int = Field(1, gt=0, le=256, description="request slots, each with `context` tokens of its own")
    reasoning: _Reasoning = Field("auto", description="thinking before the answer; auto: as the chat template has it")
    ttl: int = Field(600, ge=0, description="seconds idle before its memory is given back; 0: never")
    group: Id = Field("main", description="one of its models can run at any time; more of them where they fit together")
    aliases: tuple[_Alias, ...] = Field((), strict=False, description="further names that requests may use")
    fallback: Id | None = Field(
        None,
        exclude_if=lambda value: value is None,  # a lock without such a model has no such key
        description="the model that a gateway asks where this one cannot be loaded or is busy; the same task",
    )
    args: dict[str, Any] = Field(
        default_factory=dict,
        max_length=_MOST_FLAGS,
        description="further llama-server flags by long name without dashes, e.g. cache-type-k: q8_0",
    )
    unsafe: dict[str, UnsafeFlag] = Field(
        default_factory=dict,
        max_length=_MOST_FLAGS,
        description="flags that args does not take, each with its reason",
    )
    image_max_tokens: int | None = Field(
        None, gt=0, le=65_536, description="most tokens one image may take (default: 1024, at most a third of context)"
    )
    images_per_request: int | None = Field(
        None, gt=0, le=1024, description="most images that a request holds, of 896 pixels a side; context must fit them"
    )
    cache_ram_mib: int = Field(1024, ge=0, description="MiB of host memory for cached prompts")
    draft: Draft | None = Field(None, description="a draft model; its memory is part of the seat")
    adapters: tuple[Adapter, ...] = Field(
        (), max_length=16, strict=False, description="LoRA adapters of this very model: always applied, or by name"
    )
    vram: DeclaredVram | None = None
    smoke: Smoke | None = None
    latency: tuple[LatencyBudget, ...] = Field((), strict=False, description="how fast it must answer, by consumer")

    def as_served(self, model_id: str) -> Model:
        """The intent as it takes effect: what vLLM serves stays loaded, so no other model shares its group."""
        return self.model_copy(update={"group": model_id, "ttl": 0}) if self.engine == "vllm" else self

    @property
    def vision(self) -> bool:
        """Whether requests may hold images, so that a projector is needed."""
        return "image" in self.modalities

    @property
    def image_tokens(self) -> int:
        """Most tokens one image may take: as given, else 1024, but small enough for two images and an answer."""
        return self.image_max_tokens or max(1, min(DEFAULT_IMAGE_TOKENS, self.context // 3))

    def normalised(self) -> Model:
        """The same intent with every default filled, as the lock holds it; with ``cards`` it has no card yet."""
        filled = {
            "image_max_tokens": self.image_tokens if self.vision else None,
            "latency": tuple(sorted(self.latency, key=lambda one: one.consumer)),
            "cache_ram_mib": 0 if self.adapter_names else self.cache_ram_mib,
        }
        return self.model_copy(update=filled)

    def is_locked_as(self, locked: Model) -> bool:
        """Whether *locked*, of a lock, is this intent, on one of the cards that it may run on."""
        placed = {"card": locked.card} if locked.card in self.cards else {}
        return locked == self.normalised().model_copy(update=placed)

    @property
    def weights(self) -> Source:
        """Where the files of its engine come from."""
        return (self.vllm.source if self.engine == "vllm" and self.vllm else None) or self.source

    @property
    def on_vllm(self) -> Vllm | None:
        """How vLLM serves it; None: llama.cpp does."""
        return (self.vllm or Vllm.model_validate({})) if self.engine == "vllm" else None

    @field_validator("source")
    @classmethod
    def _source_is_of_one_engine(cls, value: Source, info: ValidationInfo) -> Source:
        if info.data.get("engine") != "vllm" and not value.names_a_file:
            raise ValueError(ONE_FILE)
        return value

    @model_validator(mode="after")
    def _engine_can_serve(self) -> Self:
        """What llama-server has and vLLM does not, or corral does not configure there."""
        if self.vllm and self.vllm.source and (self.vllm.source.repo is None or self.vllm.source.names_a_file):
            raise ValueError(
                "vllm.source names a repository on the hub, whose safetensors are served: no quant, no file."
            )
        if self.engine == "llama.cpp":
            return self
        if self.weights.repo is None or self.weights.names_a_file:
            raise ValueError(
                "engine is vllm, which serves the safetensors of a repository: leave quant and file out of source, or "
                "keep them for llama.cpp and add vllm: {source: {repo: org/name}}."
            )
        # The keys of llama-server may stay in a file that has a source for each engine.
        alone = self.weights is self.source
        for present, reason in (
            (self.task != "chat", f"corral runs chats on it, and no task: {self.task}"),
            (self.vision, "corral cannot count what its images take: write modalities: [text]"),
            (self.adapters, "corral locks no adapters for it yet: leave adapters out"),
            (self.cards, "its share of the memory is computed for one card: name it with card"),
            (alone and (self.args or self.unsafe), "args and unsafe are flags of llama-server: leave them out"),
            (alone and self.draft, "draft is for llama-server: leave it out"),
        ):
            if present:
                raise ValueError(f"engine is vllm, and {reason}.")
        if self.vllm and self.vllm.max_batched_tokens < self.parallel:
            raise ValueError(f"vllm.max_batched_tokens must be at least parallel, {self.parallel}.")
        return self

    @field_validator("cards")
    @classmethod
    def _several_cards(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) == 1:
            raise ValueError(f"names one card: write card: {value[0]}.")
        if repeated := next((one for one in value if value.count(one) > 1), None):
            raise ValueError(f"names {repeated} twice.")
        return value

    @model_validator(mode="after")
    def _has_a_card(self) -> Self:
        if not self.card and not self.cards:
            raise ValueError("required key card is missing. Of several cards, cards lists those that it may run on.")
        return self

    @field_validator("modalities")
    @classmethod
    def _text_and_no_repeats(cls, value: tuple[_Modality, ...]) -> tuple[_Modality, ...]:
        if "text" not in value:
            raise ValueError("must contain text: every model here answers in words.")
        if len(set(value)) != len(value):
            raise ValueError(f"names {next(v for v in value if value.count(v) > 1)} twice.")
        return value

    @field_validator("latency")
    @classmethod
    def _one_budget_a_consumer(cls, value: tuple[LatencyBudget, ...]) -> tuple[LatencyBudget, ...]:
        names = [one.consumer for one in value]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"has two budgets of {repeated}: a consumer has one.")
        return value

    @model_validator(mode="after")
    def _budgets_fit_into_the_context(self) -> Self:
        for one in self.latency:
            if (tokens := one.prompt_tokens + one.answer_tokens) > self.context:
                raise ValueError(
                    f"latency of {one.consumer} is for {one.prompt_tokens} + {one.answer_tokens} = {tokens} tokens, "
                    f"more than context {self.context}: such a request would be refused."
                )
        return self

    @property
    def adapter_names(self) -> tuple[str, ...]:
        """The names under which requests choose an adapter, as MODEL:NAME, in the order of the file."""
        return tuple(dict.fromkeys(one.name for one in self.adapters if one.name))

    def versions_of(self, name: str) -> tuple[str, ...]:
        """The versions of the adapter *name*; the first is the one that serves when none was chosen."""
        return tuple(one.id.partition("@")[2] for one in self.adapters if one.name == name)

    @model_validator(mode="after")
    def _adapters_by_name(self) -> Self:
        if not self.adapter_names:
            return self
        ids = [one.id for one in self.adapters if one.id]
        if repeated := next((one for one in ids if ids.count(one) > 1), None):
            raise ValueError(f"adapters has {repeated} twice: give each file of a name a version of its own.")
        named = [(one.name, one.source) for one in self.adapters if one.name]
        if same := next((name for name, source in named if named.count((name, source)) > 1), None):
            raise ValueError(f"adapters has versions of {same} with the same source: name a revision or file of each.")
        if self.task != "chat":
            raise ValueError(f"task is {self.task}, for which the engine applies adapters to all requests: no name.")
        if "cache_ram_mib" in self.model_fields_set and self.cache_ram_mib:
            raise ValueError(
                "cache_ram_mib is set, and adapters have names: the engine keeps prompts there without their adapter, "
                "and would answer with those of another one. Leave cache_ram_mib out."
            )
        return self

    @property
    def extras(self) -> tuple[tuple[Literal["draft", "adapter"], Source], ...]:
        """The files beside the model's own: draft model and adapters, with their sources; vLLM has none."""
        if self.engine == "vllm":
            return ()
        draft = (("draft", self.draft.source),) if self.draft else ()
        return (*draft, *(("adapter", one.source) for one in self.adapters))

    @model_validator(mode="after")
    def _extras_are_where_the_model_is(self) -> Self:
        for role, source in self.extras:
            if (source.path is None) != (self.source.path is None):
                where = "on the hub" if self.source.path is None else "on disk"
                raise ValueError(f"the source of its {role} must be {where}, as the model's own is.")
            if source.mmproj != "auto":
                raise ValueError(f"the source of its {role} has no projector: leave mmproj out.")
            if not source.names_a_file:
                raise ValueError(f"the source of its {role} {ONE_FILE}")
        return self

    @model_validator(mode="after")
    def _task_fits(self) -> Self:
        """Only a chat has answers; the other tasks turn a text into numbers."""
        smoke = self.smoke
        if self.task == "chat":
            if smoke and smoke.near is not None:
                raise ValueError(
                    "smoke.near and smoke.far are for task: embedding and task: rerank; a chat has expect."
                )
            return self
        without = f"task is {self.task}, which has no"
        if self.vision:
            raise ValueError(f"{without} images: write modalities: [text].")
        if self.reasoning != "auto":
            raise ValueError(f"{without} reasoning: leave reasoning out.")
        if self.draft:
            raise ValueError(f"{without} tokens to draft: leave draft out.")
        if self.latency:
            raise ValueError(f"{without} tokens of an answer: leave latency out.")
        if smoke and smoke.expect is not None:
            raise ValueError(f"{without} answer in words: leave smoke.expect out, and write smoke.near and smoke.far.")
        if smoke and smoke.near is None:
            raise ValueError(f"task is {self.task}: smoke needs near and far beside prompt, or may be left out.")
        return self

    @model_validator(mode="after")
    def _projector_fits_modalities(self) -> Self:
        mmproj = self.source.mmproj
        if self.vision and mmproj == "none":
            raise ValueError(
                "modalities has image, but source.mmproj is none: an image needs a projector (auto, or a file)."
            )
        if not self.vision and mmproj not in ("auto", "none"):
            raise ValueError(
                f"source.mmproj names {mmproj}, but modalities has no image: it would take memory for nothing."
            )
        if not self.vision and self.image_max_tokens is not None:
            raise ValueError("image_max_tokens is set, but modalities has no image.")
        if not self.vision and self.images_per_request is not None:
            raise ValueError("images_per_request is set, but modalities has no image.")
        if self.vision and self.image_tokens >= self.context:
            raise ValueError(
                f"image_max_tokens is {self.image_tokens}: an image would not fit into context {self.context}."
            )
        return self

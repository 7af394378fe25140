"""Whether the weights of a model can do its task: llama-server accepts what it then answers with errors or noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from corral.catalog.intent import Model, Task
from corral.errors import NoModel, Refused
from corral.vram import parts
from corral.vram.gguf_header import GgufHeader, LeftOut
from corral.vram.server_flags import by_flag

_POOLINGS: Final = {1: "mean", 2: "cls", 3: "last", 4: "rank"}
"""enum llama_pooling_type in llama.cpp's include/llama.h; what is no other is none."""
_HEAD: Final = "cls."
"""Names of the tensors that make a score of a pooled text begin so (src/llama-arch.cpp)."""
_EMBEDDING: Final = "token_embd.weight"
"""Its matrices of an adapter lie the other way round (src/llama-adapter.cpp)."""
_MOST_APART: Final = 128  # SPEC_VOCAB_MAX_SIZE_DIFFERENCE in llama.cpp's common/speculative.cpp
_NO_MODEL: Final = {"adapter": "a LoRA adapter", "mmproj": "a projector"}
"""Values of general.type: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md."""
_SAME_TOKENS: Final = (
    ("tokenizer.ggml.model", ""),
    ("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id"),
    ("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id"),
)
"""What common_speculative_are_compatible of common/speculative.cpp compares, and the token that follows from it."""
_DEFAULT_BATCHES: Final = {"batch-size": 2048, "ubatch-size": 512}


def task_of(headers: Sequence[GgufHeader]) -> Task:
    """What the weights of *headers* were made for, by how they pool a text and in which directions they read it."""
    header = headers[0]
    if _pooling(header) == "rank":
        return "rerank"
    return "embedding" if _pooling(header) != "none" or _is_encoder(header) else "chat"


def require_model(header: GgufHeader, step: str = "") -> None:
    """Return when *header* is that of a model: of an adapter or a projector the engine would abort.

    Raises:
        NoModel: it is not; *step* is the next one.
    """
    kind = header.metadata.get("general.type")
    kind = "mmproj" if header.architecture == "clip" else kind
    if kind in _NO_MODEL:
        where = "adapters: in the file of the model that it is for (docs/models.md)"
        usual = f"Name it under {where}" if kind == "adapter" else "Name the model's own file"
        raise NoModel(f"it is {_NO_MODEL[kind]}, and no model.", next_step=step or usual)


def require_task(model_id: str, model: Model, headers: Sequence[GgufHeader], argv: Sequence[str]) -> None:
    """Return when the model of *headers* can do the task of its intent with *argv*.

    Raises:
        Refused: it cannot; the message has the reason.
    """
    header, file = headers[0], f"{model_id}.yaml"
    if model.task == "chat":
        if _is_encoder(header):
            why = f"its weights ({header.architecture}) read a text in both directions, so they cannot continue one"
            raise Refused(f"{why}: it has no chat.", next_step=f"Set task: {task_of(headers)} in {file}")
        return
    values = {name: words[-1] for name, words in by_flag(argv)}
    pooling = values.get("pooling") or _pooling(header)
    if model.task == "rerank":
        if not any(tensor.name.startswith(_HEAD) for one in headers for tensor in one.tensors):
            why = "task is rerank, and its weights have no classifier head (cls.…): its scores would be noise"
            raise Refused(f"{why}.", next_step=f"Choose a reranker, or set task: embedding in {file}")
    elif pooling in ("none", "rank"):
        message = f"task is embedding, and its weights state pooling {pooling}: a text would have no one vector."
        step = f"State how it pools, by its model card, in {file}: args: {{pooling: mean}}, or cls, or last"
        raise Refused(message, next_step=f"Set task: rerank in {file}" if pooling == "rank" else step)
    batch = min(int(float(values.get(name, usual))) for name, usual in _DEFAULT_BATCHES.items())
    if pooling != "last" and batch < model.context:
        message = (
            f"its micro-batch is {batch:,} tokens, and a text of its whole context, {model.context:,}, is computed at "
            "once: it would be refused."
        )
        raise Refused(message, next_step=f"Leave batch-size and ubatch-size out of {file}, or lower its context")


def require_extras(model: Model, headers: Sequence[GgufHeader], argv: Sequence[str]) -> None:
    """Return when the draft model and the adapters among *headers* are for this model, by their own headers.

    Raises:
        Refused: one is not; the message has the reason.
    """
    own = parts.of(headers, argv)
    base = own.model[0]
    shapes = {tensor.name: tensor.shape for header in own.model for tensor in header.tensors}
    for number, (adapter, wanted) in enumerate(zip(own.adapters, model.adapters, strict=True), start=1):
        if problem := _no_adapter(adapter, base.architecture, shapes):
            where = wanted.source.repo or wanted.source.path
            raise Refused(f"adapter {number} ({where}) {problem}.", next_step="Correct its source, or leave it out")
    if own.draft and model.draft:
        _require_draft(base, own.draft)
        ours, its = vocabulary(base), vocabulary(own.draft)
        if ours is None or its is None or abs(ours - its) > _MOST_APART:
            shown = " and ".join("an unknown number of" if one is None else f"{one:,}" for one in (its, ours))
            why = f"its draft model and the model have {shown} tokens, and a draft needs the same vocabulary"
            raise Refused(f"{why}.", next_step="Choose a draft model of the same family, or leave draft out")


def _require_draft(base: GgufHeader, draft: GgufHeader) -> None:
    """Return when the two may have the same tokens, by all that the headers state of them but the tokens themselves."""
    step = "Choose a draft model of the same family, or leave draft out"
    try:
        require_model(draft, step)
    except NoModel as error:
        raise NoModel(f"its draft: {error.message}", next_step=step) from None
    for key, token in _SAME_TOKENS:
        ours, its = (header.metadata.get(key) for header in (base, draft))
        names = {key: (ours, its)}
        if token and ours and its:
            names[token] = (base.metadata.get(token), draft.metadata.get(token))
        for name, (one, other) in names.items():
            if one is not None and other is not None and one != other:
                why = f"its draft model states {name} {other!r} and the model {one!r}"
                raise Refused(f"{why}: a draft needs the same vocabulary.", next_step=step)


def _no_adapter(adapter: GgufHeader, architecture: str, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Why *adapter* is none for a model with these tensors; empty: it is one."""
    kind = adapter.metadata.get("general.type"), adapter.metadata.get("adapter.type")
    if kind != ("adapter", "lora"):
        return f"is no LoRA adapter: its header states {kind[0]!r} and {kind[1]!r}"
    if adapter.architecture != architecture:
        return f"is for the architecture {adapter.architecture}, and the model is of {architecture}"
    if not adapter.tensors:
        return "has no tensor"
    of = {tensor.name: tensor.shape for tensor in adapter.tensors}
    for name, shape in of.items():
        target, _, half = name.rpartition(".")
        other = of.get(f"{target}.{'lora_b' if half == 'lora_a' else 'lora_a'}")
        if half not in ("lora_a", "lora_b") or other is None:
            return f"has {name}, which is no half of a pair of matrices"
        if target not in shapes:
            return f"changes {target}, which the model does not have"
        if half == "lora_b":
            continue
        product = _product(shape, other, turned=target == _EMBEDDING)
        if product != shapes[target]:
            found, wanted = (" by ".join(map(str, one)) for one in (product, shapes[target]))
            return f"changes {target} with matrices for {found or 'nothing'}, and the model's is {wanted}"
    return ""


def _product(first: tuple[int, ...], second: tuple[int, ...], *, turned: bool) -> tuple[int, ...]:
    """The shape of what a pair of matrices changes, of each expert where there are several; empty: it is no pair."""
    if min(len(first), len(second)) < 2 or first[2:] != second[2:]:
        return ()
    if turned:
        return (second[1], first[1]) if first[0] == second[0] else ()
    return (first[0], second[1], *first[2:]) if first[1] == second[0] else ()


def vocabulary(header: GgufHeader) -> int | None:
    """How many tokens the model of *header* has; None when it does not state that."""
    stated = header.metadata.get(f"{header.architecture}.vocab_size")
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, LeftOut):
        return tokens.count
    return stated if isinstance(stated, int) else None


def _pooling(header: GgufHeader) -> str:
    stated = header.metadata.get(f"{header.architecture}.pooling_type")
    return _POOLINGS.get(stated, "none") if isinstance(stated, int) else "none"


def _is_encoder(header: GgufHeader) -> bool:
    return header.metadata.get(f"{header.architecture}.attention.causal") is False

"""Whether the weights of a model can do its task: llama-server accepts what it then answers with errors or noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from corral.catalog.intent import Model, Task
from corral.errors import Refused
from corral.vram.gguf_header import GgufHeader
from corral.vram.server_flags import by_flag

_POOLINGS: Final = {1: "mean", 2: "cls", 3: "last", 4: "rank"}
"""enum llama_pooling_type in llama.cpp's include/llama.h; what is no other is none."""
_HEAD: Final = "cls."
"""Names of the tensors that make a score of a pooled text begin so (src/llama-arch.cpp)."""
_DEFAULT_BATCHES: Final = {"batch-size": 2048, "ubatch-size": 512}


def task_of(headers: Sequence[GgufHeader]) -> Task:
    """What the weights of *headers* were made for, by how they pool a text and in which directions they read it."""
    header = headers[0]
    if _pooling(header) == "rank":
        return "rerank"
    return "embedding" if _pooling(header) != "none" or _is_encoder(header) else "chat"


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


def _pooling(header: GgufHeader) -> str:
    stated = header.metadata.get(f"{header.architecture}.pooling_type")
    return _POOLINGS.get(stated, "none") if isinstance(stated, int) else "none"


def _is_encoder(header: GgufHeader) -> bool:
    return header.metadata.get(f"{header.architecture}.attention.causal") is False

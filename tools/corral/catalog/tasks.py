"""What a model's task makes impossible: only a chat has answers in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from corral.catalog.intent import Model, Task
from corral.errors import Refused

PATHS: dict[Task, str] = {
    "chat": "/v1/chat/completions",
    "embedding": "/v1/embeddings",
    "rerank": "/v1/rerank",
}
"""Where the requests of each task go."""


def require_chat(model_id: str, model: Model, command: str) -> None:
    """Refuse *command*, which sends chats, for a model of another task.

    Raises:
        Refused: the model has no chat.
    """
    if model.task != "chat":
        answers = f"the task of {model_id} is {model.task}: it answers at {PATHS[model.task]}"
        raise Refused(f"corral {command} sends chats, and {answers}.", next_step=f"corral smoke {model_id}")


def chats(models: Mapping[str, Model], named: Sequence[str], command: str) -> list[str]:
    """The ids *named*, or those of all chats among *models* where none is named.

    Raises:
        Refused: one that is named has no chat, or there is none at all.
    """
    for model_id in named:
        require_chat(model_id, models[model_id], command)
    found = [*named] or [model_id for model_id, model in models.items() if model.task == "chat"]
    if not found:
        raise Refused(f"corral {command} sends chats, and no model has task: chat.", next_step="corral smoke")
    return found


def require_no_other(models: Mapping[str, Model], names: Iterable[str], command: str) -> None:
    """Refuse *command* for the first of *names*, ids or aliases, whose model has no chat; unknown ones are passed over.

    Raises:
        Refused: there is one.
    """
    ids = {name: model_id for model_id, model in models.items() for name in (model_id, *model.aliases)}
    for name in names:
        if model_id := ids.get(name):
            require_chat(model_id, models[model_id], command)


def request(task: Task, model_id: str, text: str) -> dict[str, Any]:
    """A short request for the model: its *text* is the content of the chat, or what is embedded or compared."""
    match task:
        case "chat":
            messages = [{"role": "user", "content": text}]
            return {"model": model_id, "messages": messages, "max_tokens": 4}
        case "embedding":
            return {"model": model_id, "input": text}
        case "rerank":
            return {"model": model_id, "query": "-", "documents": [text]}

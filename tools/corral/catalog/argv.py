"""The exact llama-server command line of a model.

What is written here is what is measured, rendered and run: the lock keeps it word for word.
"""

from __future__ import annotations

from collections.abc import Sequence

from corral.agent.lock_file import LockedFile, LockedModel
from corral.catalog import flags
from corral.catalog.intent import Model

ALL_LAYERS = 99
"""More layers than any model has: the whole model is on the card, or the load fails."""


def llama_server_argv(model_id: str, model: Model, files: Sequence[LockedFile]) -> list[str]:
    """The words of the command line, ``llama-server`` first.

    ``${STORE}`` stands for the model store (filled by the renderer), ``${PORT}`` for the port that llama-swap
    chooses.  Every flag that decides memory is given, so that neither the engine's defaults nor a neighbour's
    memory can change what was measured.

    Args:
        model_id: the catalog's name of the model.
        model: its intent; ``context`` is tokens per request slot, ``-c`` is that times ``parallel``.
        files: the locked files, shards in order, draft model, adapters, projector last.
    """
    names = list(LockedModel(model_id, repo=None, revision=None, files=tuple(files)).links)
    folder = f"${{STORE}}/{model_id}"
    argv = ["llama-server", "-m", f"{folder}/{names[0]}", "--alias", model_id]
    if model.draft:
        argv += ["-md", f"{folder}/draft.gguf", "--spec-type", "draft-simple", "--spec-draft-ngl", str(ALL_LAYERS)]
        argv += ["--no-spec-draft-backend-sampling"]
    if model.adapters:
        # One with a name starts without effect: a request turns it on by its number (modules/llama-swap-config).
        scales = ("0" if one.name else f"{one.scale:g}" for one in model.adapters)
        scaled = (f"{folder}/adapter-{at}.gguf:{scale}" for at, scale in enumerate(scales, start=1))
        argv += ["--lora-scaled", ",".join(scaled)]
    if files[-1].role == "projector":
        argv += ["--mmproj", f"{folder}/{names[-1]}", "--image-max-tokens", str(model.image_tokens)]
    argv += ["-c", str(model.context * model.parallel), "-np", str(model.parallel), "-ngl", str(ALL_LAYERS)]
    argv += ["-fa", "on", "-fit", "off", "--no-context-shift", "--cache-ram", str(model.normalised().cache_ram_mib)]
    argv += ["--reasoning", model.reasoning] if model.task == "chat" else _whole_texts(model)
    argv += ["--metrics", "--offline"]
    argv += flags.words(model.args)
    argv += flags.words({name: one.value for name, one in model.unsafe.items()})
    argv += ["--host", "127.0.0.1", "--port", "${PORT}"]
    return argv


def _whole_texts(model: Model) -> list[str]:
    """The task, and a micro-batch for a text of the whole context: most of these models compute a text at once."""
    argv = [f"--{model.task}"]
    if not any(flags.is_spelling_of("ubatch-size", name) for name in model.args):
        argv += ["-b", str(model.context), "-ub", str(model.context)]
    return argv

"""What depends on the engine of a model: its command line, and whose rules predict its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corral.agent.lock_file import LockedFile
from corral.catalog.argv import llama_server_argv
from corral.catalog.card import Card
from corral.catalog.intent import Model
from corral.catalog.vllm_argv import vllm_argv
from corral.engine import embedded
from corral.vram import rules, vllm_seat
from corral.vram.prediction import Prediction


def argv_of(
    model_id: str,
    model: Model,
    files: Sequence[LockedFile],
    predicted: Prediction | None,
    cards: Mapping[str, Card],
) -> list[str]:
    """The exact command line of *model*.

    Args:
        model_id: the catalog's name of the model.
        model: its intent.
        files: its locked files.
        predicted: what it takes; only of a model on vLLM, whose share of the card is part of the command line.
        cards: every card by name.
    """
    if model.engine == "llama.cpp":
        return llama_server_argv(model_id, model, files)
    # Not what was measured: vLLM fills its share, so that a measurement would raise the share that it is of.
    known = max(predicted.gpu_bytes or 0 if predicted else 0, model.vram.bytes if model.vram else 0)
    return vllm_argv(model_id, model, vllm_seat.budget_bytes(known), cards[model.card].vram_mib)


def predictor_of(model: Model) -> tuple[str, int]:
    """What predicts the memory of *model*: its name in a prediction, and the version of the rules."""
    if model.engine == "vllm":
        return vllm_seat.ENGINE, vllm_seat.RULES_VERSION
    return embedded.ENGINE, rules.RULES_VERSION

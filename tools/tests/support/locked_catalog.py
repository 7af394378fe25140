"""Catalogs with a fresh lock, for tests that begin where `corral lock` ends: without a hub and without an engine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corral.agent.lock_file import LockedFile, Role
from corral.catalog import catalog as catalogs
from corral.catalog import ledger
from corral.catalog.argv import llama_server_argv
from corral.catalog.catalog import Catalog
from corral.catalog.intent import Model
from corral.catalog.ledger import Ledger, Measurement
from corral.engine.embedded import ENGINE, LLAMA_CPP_BUILD
from corral.lock import image_build
from corral.lock import lock as locks
from corral.lock.engines import argv_of
from corral.lock.lock import Lock, LockEntry
from corral.lock.relock import with_measurements
from corral.vram import vllm_seat
from corral.vram.prediction import MIB, Bytes, Prediction, Rule, Rung
from corral.vram.rules import RULES_VERSION

RULES_MIB = 117
SMALLEST_INTENT: dict[str, Any] = {
    "source": {"repo": "example/tiny-GGUF", "quant": "F16"},
    "card": "laptop",
    "context": 512,
    "modalities": ["text"],
}


def prediction(gpu_bytes: int, ladder: Mapping[int, int] | None = None, /, **more: Any) -> Prediction:
    """What the engine would predict: parts and rules add up to *gpu_bytes*; *ladder* is bytes by context.

    Args:
        gpu_bytes: all bytes on the card.
        ladder: none by default.
        more: any other field of the prediction.
    """
    rules = min(RULES_MIB * MIB, gpu_bytes // 2)
    plain: dict[str, Any] = {
        "engine": ENGINE,
        "rules_version": RULES_VERSION,
        "headers": (),
        "context_trained": 40960,
        "gpu": Bytes(weights=gpu_bytes - rules, context=0, compute=0, projector=0),
        "host": Bytes(weights=0, context=0, compute=0, projector=0),
        "rules": (Rule(name="cuda-context-and-pools", bytes=rules, source="a test"),),
        "gpu_bytes": gpu_bytes,
        "ladder": tuple(
            Rung(context=at, gpu_bytes=total, host_bytes=0) for at, total in sorted((ladder or {}).items())
        ),
    }
    return Prediction(**plain | more)


def entry(model_id: str, model: Model, predicted: Prediction | None = None, **more: Any) -> LockEntry:
    """The lock entry of *model*: files that exist nowhere, the argv that corral makes, 100 MiB unless *predicted*."""
    roles: tuple[Role, ...] = ("model", "projector") if model.vision else ("model",)
    files = tuple(LockedFile(f"{role}.gguf", role, 1 << 20, _sha256(f"{model_id} {role}")) for role in roles)
    plain: dict[str, Any] = {
        "intent": model.normalised(),
        "repo": model.source.repo,
        "revision": _sha256(model_id)[:40] if model.source.repo else None,
        "licence": "apache-2.0",
        "files": files,
        "argv": tuple(llama_server_argv(model_id, model, files)),
        "predicted": predicted or prediction(100 * MIB),
        "measured": None,
    }
    return LockEntry(**plain | more)


def lock_of(
    catalog: Catalog,
    *,
    needs: Mapping[str, int] | None = None,
    argv: Sequence[str] | None = None,
) -> Lock:
    """A fresh lock of *catalog*, with what its ledger has measured.

    Args:
        catalog: as it was loaded.
        needs: predicted MiB of models on their card; 100 where none is given.
        argv: the command of every model, whatever its intent; by default the one that corral makes.
    """
    words = {} if argv is None else {"argv": tuple(argv)}
    made = {}
    for model_id, model in catalog.models.items():
        need = (needs or {}).get(model_id, 100) * MIB
        if model.engine == "vllm":
            made[model_id] = _on_vllm(catalog, model_id, model, need)
        else:
            made[model_id] = entry(model_id, model, prediction(need), **words)
    images = {key: image.at(image.digest or f"sha256:{_sha256(key)}") for key, image in catalog.images.items()}
    labels = {image_build.LABEL: LLAMA_CPP_BUILD}
    engine = image_build.find(images, declared=catalog.llama_cpp_build, labels=lambda _: labels)
    lock = Lock(
        sources=dict(catalog.sources),
        images=images,
        engine=engine,
        cards=dict(catalog.cards),
        clients=dict(catalog.clients),
        models=made,
    )
    return with_measurements(lock, catalog)


def _on_vllm(catalog: Catalog, model_id: str, model: Model, need: int) -> LockEntry:
    predicted = prediction(need, engine=vllm_seat.ENGINE, rules_version=vllm_seat.RULES_VERSION)
    names = ("model.safetensors", "config.json")
    files = tuple(LockedFile(name, "part", 1 << 20, _sha256(f"{model_id} {name}")) for name in names)
    argv = tuple(argv_of(model_id, model, files, predicted, catalog.cards))
    return entry(model_id, model, predicted, files=files, argv=argv, repo=model.weights.repo)


def write_sources(
    folder: Path, models: Mapping[str, Any], cards: Mapping[str, Any] | None = None, **files: Any
) -> Path:
    """Write ``models/<id>.yaml`` and ``cards/<card>.yaml`` (as JSON, which is YAML); return *folder*.

    Args:
        folder: where; made when missing.
        models: each model's intent by id.
        cards: each card by name; by default the one that ``SMALLEST_INTENT`` names.
        files: further files by stem: ``images`` and ``clients`` (YAML), ``measured`` (JSON).
    """
    for kind, named in (("models", models), ("cards", cards or {"laptop": {"vram_mib": 8192}})):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for name, value in named.items():
            (folder / kind / f"{name}.yaml").write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    for stem, value in files.items():
        (folder / f"{stem}.{'json' if stem == 'measured' else 'yaml'}").write_text(json.dumps(value), encoding="utf-8")
    return folder


def write_catalog(folder: Path, intents: Mapping[str, Any], argv: Sequence[str] | None = None) -> Path:
    """Write models, a card and a lock that belongs to them; return *folder*.

    Args:
        folder: where; made when missing.
        intents: each model's intent by id.
        argv: as in ``write_lock``.
    """
    write_sources(folder, intents)
    write_lock(folder, argv=argv)
    return folder


def write_lock(folder: Path, needs: Mapping[str, int] | None = None, argv: Sequence[str] | None = None) -> None:
    """Write the lock that belongs to the catalog in *folder*.

    Args:
        folder: with ``models/`` and ``cards/``.
        needs: as in ``lock_of``.
        argv: the same.
    """
    catalog = catalogs.load(folder)
    locks.write(catalog.lock_file, lock_of(catalog, needs=needs, argv=argv))


def set_measurements(folder: Path, *records: Measurement) -> None:
    """Make *records* the catalog's whole ``measured.json``, or none of it, and take that into the lock."""
    if records:
        ledger.write(folder, Ledger(measurements=records))
    else:
        ledger.path_of(folder).unlink(missing_ok=True)
    catalog = catalogs.load(folder)
    present = locks.read(catalog.lock_file)
    assert present is not None
    locks.write(catalog.lock_file, with_measurements(present, catalog))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

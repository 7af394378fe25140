"""Catalogs that are locked without a hub, an engine or a registry: stand-ins that record their requests."""

from __future__ import annotations

import json

from corral.agent.lock_file import LockedFile
from corral.catalog import catalog
from corral.engine.embedded import ENGINE, LLAMA_CPP_BUILD
from corral.errors import LockStale
from corral.hub.resolved import Resolved
from corral.lock import lock
from corral.lock.pins import pins
from corral.lock.predict import Predicted, Predictor
from corral.lock.relock import relock
from corral.vram.prediction import Bytes, Prediction
from corral.vram.rules import RULES_VERSION
from tests.support.locks import write_sealed

COMMIT, NEXT = "a" * 40, "b" * 40
TEXT = "source: {repo: org/text, quant: Q4_K_M}\ncard: t4\ncontext: 4096\nmodalities: [text]\n"
VISION = "source: {repo: org/vision, quant: Q4_K_M}\ncard: t4\ncontext: 4096\nmodalities: [text, image]\n"


class Hub:
    """Resolves as the hub would, without a network, and records each request."""

    def __init__(self):
        self.requests = []
        self.head = COMMIT

    def __call__(self, model, catalog_dir, revision):
        self.requests.append((model.source.repo, revision))
        commit = revision or self.head
        files = [LockedFile(path="m-Q4_K_M.gguf", role="model", size=100, sha256=commit[0] * 64)]
        if model.vision:
            files.append(LockedFile(path="mmproj-F16.gguf", role="projector", size=10, sha256="c" * 64))
        return Resolved(repo=model.source.repo, revision=commit, licence="mit", files=tuple(files))


class Engine(Predictor):
    """Predicts 1 byte of weights for any files, and records the models."""

    def __init__(self, folder):
        super().__init__(catalog.load(folder))
        self.requests = []

    def predict(self, model_id, model, resolved, argv, known=(), runs=None):
        self.requests.append(model_id)
        parts = Bytes(weights=1, context=0, compute=0, projector=0)
        found = Prediction(engine=ENGINE, rules_version=RULES_VERSION, headers=(), gpu=parts, host=parts, gpu_bytes=1)
        return Predicted(found)


SWAP, FETCH = f"ghcr.io/org/swap:v1-{LLAMA_CPP_BUILD}", "python:3.13-slim"
ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64


class Registry:
    """Knows one digest, and records each request."""

    def __init__(self, digest=ONE):
        self.digest, self.requests = digest, []

    def __call__(self, image):
        self.requests.append(image.tagged)
        return self.digest


def edit(folder, model, old, new):
    file = folder / "models" / f"{model}.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def locked(folder, hub, engine=None, **options):
    """Lock *folder* as `corral lock` does, write it, and return the changes by name."""
    wanted = catalog.load(folder)
    try:
        present = lock.read(wanted.lock_file)
    except LockStale:
        present, options = None, {"pins": pins(wanted.lock_file)} | options
    result = relock(wanted, present, hub, engine or Engine(folder), **options)
    lock.write(wanted.lock_file, result.lock)
    return {change.name: change for change in result.changes}


def stale(folder):
    """Reasons by name."""
    return {item.name: item.reason for item in lock.stale(catalog.load(folder))}


def codes(folder):
    return {item.name: item.code for item in lock.stale(catalog.load(folder))}


def edit_lock(folder, change):
    """Change the document and seal it anew, as no accident does."""
    document = json.loads((folder / "lock.json").read_text())
    change(document)
    write_sealed(folder / "lock.json", document)

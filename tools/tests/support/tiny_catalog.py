"""The demo's catalog without its real language model: what most tests need, and nothing of 98 MB to fetch."""

from __future__ import annotations

import shutil
from pathlib import Path

from corral import paths
from corral.catalog import catalog as catalogs
from corral.demo.tour import copy_catalog
from corral.lock import headers
from corral.lock import lock as locks

DEMO = paths.REPOSITORY / "terraform" / "catalog-demo"


def write_tiny_catalog(folder: Path) -> Path:
    """Write models, card, measurements, headers and the lock that belongs to them; return *folder*."""
    copy_catalog(folder, tiny=True)
    shutil.copy(DEMO / "measured.json", folder)
    catalog, present = catalogs.load(folder), locks.read(DEMO / "lock.json")
    assert present is not None
    models = {model_id: present.models[model_id] for model_id in catalog.models}
    lock = present.model_copy(update={"models": models, "sources": dict(catalog.sources)})
    shutil.copytree(DEMO / "headers", folder / "headers")
    headers.prune(folder, lock)
    locks.write(catalog.lock_file, lock)
    return folder

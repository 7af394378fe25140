"""Documents made from a catalog and its lock: the model tables, the page for clients, the demo's seating chart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from corral import paths, templates
from corral.catalog import flags
from corral.catalog.catalog import Catalog, load
from corral.catalog.flag_classes import ACCEPTED, GROUPS, REFUSED
from corral.catalog.intent import Adapter, DeclaredVram, LatencyBudget, Model, Smoke, UnsafeFlag
from corral.catalog.source import Source
from corral.catalog.vllm_settings import Vllm
from corral.lock import image_room
from corral.lock.lock import Lock, LockEntry, require_fresh
from corral.seating import chart, svg

GENERATED = "Written by `corral render` from the catalog and its lock: do not edit."
_MIB = 1024 * 1024


@dataclass(frozen=True)
class Document:
    """A file that is rendered: its path and its text."""

    path: Path
    text: str

    @property
    def stale(self) -> bool:
        """Whether the file is missing or has another text."""
        return not self.path.exists() or self.path.read_text(encoding="utf-8") != self.text


def repository_documents(catalog: Catalog, lock: Lock | None, root: Path = paths.REPOSITORY) -> list[Document]:
    """Every rendered document of the repository, for its own catalog."""
    return [
        Document(root / "docs" / "models.md", models_page(catalog, lock, root)),
        Document(root / "docs" / "clients.md", clients_page()),
    ]


def seating_picture() -> Document:
    """The seating chart of the demo, as the README shows it."""
    demo = load(paths.REPOSITORY / "terraform" / "catalog-demo")
    return Document(paths.REPOSITORY / "docs" / "seating-demo.svg", svg.draw(chart.of(require_fresh(demo))))


def models_table(catalog: Catalog, lock: Lock | None) -> str:
    """The Markdown table of all models."""
    return templates.render("models_table.md.j2", rows=list(_rows(catalog, lock)))


def models_page(catalog: Catalog, lock: Lock | None, root: Path) -> str:
    """``docs/models.md``: the table, and how to add a model."""
    unlocked = [model_id for model_id in catalog.models if _entry(catalog, lock, model_id) is None]
    return templates.render(
        "models.md.j2",
        generated=GENERATED,
        catalog=catalog.directory.relative_to(root),
        table=models_table(catalog, lock).rstrip(),
        unlocked=unlocked,
        keys=[
            *_keys("source.", Source.model_fields),
            *_keys("", Model.model_fields),
            *_keys("unsafe.<flag>.", UnsafeFlag.model_fields),
            *_keys("vram.", DeclaredVram.model_fields),
            *_keys("smoke.", Smoke.model_fields),
            *_keys("latency[].", LatencyBudget.model_fields),
            *_keys("adapters[].", Adapter.model_fields),
            *_keys("vllm.", Vllm.model_fields),
        ],
        accepted=ACCEPTED,
        refused={name: why for name, why in REFUSED.items() if name != "unclassified"},
        groups=GROUPS,
        largest_kib=flags.LARGEST_TEXT >> 10,
        side_px=image_room.SIDE_PX,
        text_tokens=image_room.TEXT_TOKENS,
    )


def client_snippets(endpoint: str, model: str, streaming: str) -> list[tuple[str, str]]:
    """How each client sends a request to *endpoint*: the language of each snippet, and its text."""
    return [
        (kind, templates.render(name, endpoint=endpoint, model=asked).rstrip())
        for kind, name, asked in (
            ("bash", "try_curl.sh.j2", model),
            ("python", "try_openai.py.j2", model),
            ("python", "try_stream.py.j2", streaming),
            ("js", "try_openai.mjs.j2", model),
            ("go", "try_openai.go.j2", model),
            ("python", "try_langchain.py.j2", model),
            ("yaml", "try_programs.yaml.j2", model),
        )
    ]


def clients_page(endpoint: str = "http://127.0.0.1:8080", model: str = "tiny-text") -> str:
    """``docs/clients.md``: how to send a request to *endpoint*; `make test-gateway` runs the snippets."""
    texts = client_snippets(endpoint, model, "smollm2")
    heads = ("curl", "OpenAI for Python", "The same as a stream", "OpenAI for Node", "OpenAI for Go", "LangChain")
    snippets = [(head, *one) for head, one in zip((*heads, "Open WebUI and Home Assistant"), texts, strict=True)]
    return templates.render("clients.md.j2", generated=GENERATED, endpoint=endpoint, snippets=snippets)


def _rows(catalog: Catalog, lock: Lock | None) -> Iterator[dict[str, str]]:
    for model_id, model in catalog.models.items():
        source, entry = model.weights, _entry(catalog, lock, model_id)
        yield {
            "id": model_id,
            "task": model.task,
            "repo": source.repo or f"on disk: {source.path}",
            "quant": source.quant or source.file or (f"vLLM, {model.on_vllm.dtype}" if model.on_vllm else "as on disk"),
            "context": f"{model.context:,}",
            "projector": _projector(model, entry),
            "size": f"{sum(file.size for file in entry.files) / _MIB:,.1f} MiB" if entry else "not locked",
            "vram": _vram(entry),
            "revision": f"`{entry.revision[:12]}`" if entry and entry.revision else "not locked" if not entry else "-",
        }


def _vram(entry: LockEntry | None) -> str:
    if entry is None:
        return "not locked"
    seat = entry.seat
    return f"{seat.mib:,} MiB{'' if seat.basis == 'predicted' else f' *{seat.basis}*'}"


def _projector(model: Model, entry: LockEntry | None) -> str:
    if not model.vision:
        return "none"
    if entry is None:
        return model.source.mmproj
    return Path(entry.files[-1].path).name


def _entry(catalog: Catalog, lock: Lock | None, model_id: str) -> LockEntry | None:
    entry = lock.models.get(model_id) if lock else None
    return entry if entry and catalog.models[model_id].is_locked_as(entry.intent) else None


def _keys(prefix: str, fields: dict[str, FieldInfo]) -> Iterator[dict[str, str]]:
    for name, field in fields.items():
        if name in ("source", "unsafe", "vram", "smoke", "latency", "vllm"):
            continue
        default: Any = field.get_default(call_default_factory=True)
        shown = (
            "**required**" if default is PydanticUndefined else "" if default in (None, "") else f"`{_yaml(default)}`"
        )
        yield {"name": prefix + name, "description": field.description or "", "default": shown}


def _yaml(value: Any) -> str:
    return "[]" if value == () else "{}" if value == {} else str(value)

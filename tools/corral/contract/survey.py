"""Every check, on llama-server alone and through llama-swap."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from corral.catalog.intent import Model
from corral.contract import anthropic_sdk, chat, errors, images, load, native, reach, tools
from corral.contract.check import Breach, Check, Finding, State, checks_of
from corral.contract.load import Both
from corral.contract.reach import Way
from corral.engine import llama_swap
from corral.errors import CannotRun
from corral.smoke.endpoint import Endpoint, TransportError, UnreachableError

Kind = Literal["text", "thinking", "vision"]
FAMILIES = {
    "OpenAI's SDK: chat": chat,
    "OpenAI's SDK: tools and schemas": tools,
    "OpenAI's SDK: images": images,
    "OpenAI's SDK: errors and cancellation": errors,
    "Anthropic's SDK": anthropic_sdk,
    "Plain HTTP: the paths of llama-server": native,
}
LOADING = "While a model is loaded"
_BROKEN = "the connection was closed before the answer was complete"
OTHER_FORM = "the answer has another form"


@dataclass(frozen=True)
class Row:
    """One promise, and what became of it."""

    family: str
    code: str
    title: str
    alone: Finding
    through: Finding


@dataclass(frozen=True)
class Served:
    """A local stack as the survey reaches it.

    Attributes:
        root: of the front door.
        key: of the operator, for the front door; empty: none is required.
        trust: of its certificate.
        engine_key: of the engines.
        models: the model of each kind, by its id.
        weights: the file of the text model.
        unload: unloads a model.
    """

    root: str
    key: str
    trust: ssl.SSLContext | None
    engine_key: str
    models: Mapping[Kind, str]
    weights: Path
    unload: Callable[[str], None]


def kind_of(intent: Model) -> Kind:
    """Which checks are for the model with this *intent*."""
    return "vision" if intent.vision else "thinking" if intent.reasoning == "on" else "text"


async def survey(served: Served, *, limit_s: float, report: Callable[[str], None] = lambda _: None) -> list[Row]:
    """The rows, in the order of the families; each check has *limit_s* seconds.

    Raises:
        CannotRun: a model cannot be loaded, or is not answered for in that time.
        ProgramMissing: an SDK is not installed.
    """
    found: dict[str, Both] = {}
    for kind, model in served.models.items():
        checks = [check for family in FAMILIES.values() for check in checks_of(family) if check.of == kind]
        report(f"{model}: {len(checks)} checks of llama-server, and through llama-swap ...")
        async with _through(served, model) as through, _alone(served, await _loaded(through, limit_s), model) as alone:
            for check in checks:
                found[check.code] = Both(
                    await finding(check, alone, limit_s=limit_s), await finding(check, through, limit_s=limit_s)
                )
    text = served.models["text"]
    report(f"{text}: what is answered while it is loaded ...")
    found |= await _during_a_load(served, text, limit_s)
    titles = {name: {one.code: one.title for one in checks_of(family)} for name, family in FAMILIES.items()}
    titles[LOADING] = dict(load.TITLES)
    return [
        Row(family, code, title, *found[code])
        for family, rows in titles.items()
        for code, title in rows.items()
        if code in found
    ]


async def finding(check: Check, way: Way, *, limit_s: float) -> Finding:
    """What *check* finds; a path of llama-server is tried below ``way.native``, too."""
    found = await _finding(check, way, limit_s)
    if not check.is_native or not way.native or found.state is State.WORKS:
        return found
    below = await _finding(check, replace(way, prefix=way.native), limit_s)
    if below.state is not State.WORKS:
        return found
    return Finding(State.DIFFERS, f"below `/upstream/MODEL`, which is the operator's; without it: {found.how}")


async def _finding(check: Check, way: Way, limit_s: float) -> Finding:
    import anthropic
    import httpx2
    import openai

    try:
        async with asyncio.timeout(limit_s):
            await check.ask(way)
    except Breach as breach:
        return breach.finding
    except TimeoutError:
        return Finding(State.DIFFERS, "no complete answer within the time limit")
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        return native.absent_or_differs(error.status_code, getattr(error, "type", None)).finding
    except (openai.APIConnectionError, anthropic.APIConnectionError, httpx2.HTTPError, TransportError):
        return Finding(State.DIFFERS, _BROKEN)
    except (
        openai.OpenAIError,
        anthropic.AnthropicError,
        AttributeError,
        TypeError,
        LookupError,
        ValueError,
        StopAsyncIteration,
    ) as error:
        return Finding(State.DIFFERS, f"{OTHER_FORM} ({type(error).__name__})")
    return Finding(State.WORKS)


@asynccontextmanager
async def _through(served: Served, model: str) -> AsyncIterator[Way]:
    native_path = f"/upstream/{model}"
    async with reach.opened(served.root, model, native=native_path, key=served.key, trust=served.trust) as way:
        yield way


@asynccontextmanager
async def _alone(served: Served, proxy: str, model: str) -> AsyncIterator[Way]:
    async with reach.opened(proxy, model, key=served.engine_key) as way:
        yield way


async def _loaded(way: Way, limit_s: float) -> str:
    """The address of the model's engine, loaded now."""
    try:
        async with asyncio.timeout(limit_s):
            reply = await way.http.request(f"{way.native}/health")
            residents = llama_swap.residents_in((await way.http.request("/running")).body)
    except TimeoutError:
        raise _unloadable(way.model, f"it gave no answer within {limit_s:g} s") from None
    except (UnreachableError, ValueError) as error:
        raise _unloadable(way.model, str(error)) from None
    proxy = next((one.proxy for one in residents if one.model == way.model), "")
    if reply.status != 200 or not proxy:
        raise _unloadable(way.model, f"HTTP {reply.status}")
    return proxy


def _unloadable(model: str, why: str) -> CannotRun:
    return CannotRun(f"{model} cannot be loaded: {why}.", next_step=f"corral why {model}")


async def _during_a_load(served: Served, model: str, limit_s: float) -> dict[str, Both]:
    def engine_at(proxy: str) -> Endpoint:
        return Endpoint(proxy, api_key=served.engine_key)

    async with Endpoint(served.root, api_key=served.key, trust=served.trust) as through:
        try:
            async with asyncio.timeout(limit_s):
                return await load.observe(
                    through, engine_at, model, lambda: asyncio.to_thread(served.unload, model), served.weights
                )
        except TimeoutError:
            raise _unloadable(model, f"it gave no answer within {limit_s:g} s") from None
        except (TransportError, ValueError, LookupError, TypeError) as error:
            raise _unloadable(model, str(error)) from None

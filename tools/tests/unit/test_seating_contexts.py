"""The largest context that fits, proved by the engine: real headers of published models, and a search without one."""

from __future__ import annotations

import random
from functools import cache

import pytest

from corral.agent.lock_file import LockedFile
from corral.catalog.argv import llama_server_argv
from corral.catalog.catalog import Catalog
from corral.catalog.intent import Model
from corral.engine import embedded
from corral.errors import ProgramMissing
from corral.lock import headers
from corral.lock.image_build import EngineBuilds
from corral.lock.lock import Lock, LockEntry
from corral.seating import chart, contexts
from corral.seating.contexts import STEP, Largest, search
from corral.vram import oracle
from corral.vram.gguf_header import canonical
from corral.vram.predict import predict_model, total
from corral.vram.prediction import mib
from corral.vram.rules import rules
from tests.support import gguf_models
from tests.support.seating_locks import MIB, card, catalog_of, entry, intent, lock

GROWING = {at: (500 + at // 8) * MIB for at in (2048, 4096, 8192, 16384, 32768, 40960)}


def needs_mib(names, model, *at):
    """MiB of *model* with each of the contexts *at*, by a request of its own to the engine."""
    files, parsed = files_of(names), [gguf_models.header(name) for name in names]
    argvs = [llama_server_argv("chat", contexts.at_context(model, context), files) for context in at]
    return [mib(total(found, rules(parsed, found))) for found in oracle.ask(parsed, argvs, cuda="all")]


def files_of(names):
    """The locked files of the published models *names*."""
    roles = {name: "projector" if name.startswith("mmproj") else "model" for name in names}
    return tuple(LockedFile(f"{name}.gguf", role, 1, "0" * 64) for name, role in roles.items())


def locked(names, model):
    """The lock entry of *model*, whose files are those of the published models *names*."""
    return predicted(tuple(names), model.model_dump_json(exclude_unset=True))


@cache
def predicted(names, document):
    """The lock entry of the intent that *document* is as JSON."""
    files, model = files_of(names), Model.model_validate_json(document)
    parsed = [gguf_models.header(name) for name in names]
    argv = tuple(llama_server_argv("chat", model, files))
    shas = [headers.sha256_of(canonical(header)) for header in parsed]
    found = predict_model("chat", model, files, parsed, argv, names=shas)
    return LockEntry(
        intent=model.normalised(), repo="org/name", revision="0" * 40, licence=None, files=files, argv=argv,
        predicted=found, measured=None,
    )  # fmt: skip


def kept(folder, names):
    """*folder* with the headers of *names*, as `corral lock` keeps them."""
    packed = [canonical(gguf_models.header(name)) for name in names]
    headers.write(folder, {headers.sha256_of(header): header for header in packed})
    return folder


def one_model(folder, model, found, free_mib):
    """A catalog of one model on a card on which *free_mib* MiB are left beside it."""
    one = Lock(
        sources={}, images={}, cards={"t4": card(mib(found.predicted.gpu_bytes) + free_mib)}, models={"chat": found}
    )
    return Catalog(folder, {"chat": model}, one.cards), one


@pytest.mark.parametrize(
    ("names", "keys", "free_mib"),
    [
        (["qwen3-8b-q4km"], {"context": 16384}, -1000),
        (["qwen3-8b-q4km"], {"context": 2048}, -100),
        (["qwen3-8b-q4km"], {"context": 5000, "parallel": 3}, 777),
        (["qwen3-8b-q4km"], {"context": 16384, "args": {"cache-type-k": "q8_0", "cache-type-v": "q8_0"}}, 500),
        (["gemma3-4b-q4km"], {"context": 8192}, 333),
        (["qwen3.6-27b-q2k"], {"context": 4096}, 2000),
        (["gpt-oss-20b-mxfp4"], {"context": 65536}, -700),
        (["qwen3vl-8b-q4km", "mmproj-qwen3vl-8b-f16"], {"context": 3072, "modalities": ["text", "image"]}, 200),
        (["qwen3vl-8b-q4km", "mmproj-qwen3vl-8b-f16"], {"context": 3072, "modalities": ["text", "image"]}, -300),
    ],
)
def test_the_context_that_is_offered_fits_and_256_tokens_more_do_not(names, keys, free_mib, tmp_path):
    model = intent(**keys)
    found = locked(names, model)
    catalog, one = one_model(kept(tmp_path, names), model, found, free_mib)
    room = one.cards["t4"].vram_mib

    largest = contexts.largest(catalog, one, chart.of(one))["chat"]

    assert largest.proved
    assert (largest.tokens < model.context) == (free_mib < 0)
    next_one = largest.tokens + STEP
    assert next_one <= found.predicted.context_trained, "the case must be one that memory decides"
    fits, does_not = needs_mib(names, model, largest.tokens, next_one)
    assert fits <= room < does_not
    assert largest.tokens not in {rung.context for rung in found.predicted.ladder}, "no better than the ladder"


def test_a_context_is_offered_for_the_build_that_runs(tmp_path):
    """The image has another build than predicts: its row stands in each seat, and so in that of another context."""
    names = ["qwen3vl-8b-q4km", "mmproj-qwen3vl-8b-f16"]
    model = intent(context=8192, modalities=["text", "image"], image_max_tokens=1024)
    catalog, plain = one_model(kept(tmp_path, names), model, locked(names, model), 200)
    engine = EngineBuilds(predicts=embedded.LLAMA_CPP_BUILD, runs="b11063", known_by="tag")
    drifts = plain.model_copy(update={"engine": engine})

    first, second = (contexts.largest(catalog, one, chart.of(one))["chat"].tokens for one in (plain, drifts))

    files, parsed = files_of(names), [gguf_models.header(name) for name in names]
    [count] = oracle.ask(parsed, [llama_server_argv("chat", contexts.at_context(model, second), files)], cuda="all")
    assert mib(total(count, rules(parsed, count, runs="b11063"))) <= plain.cards["t4"].vram_mib
    assert second < first


def test_the_trained_context_is_offered_without_a_question_where_it_fits(monkeypatch, tmp_path):
    monkeypatch.setattr(oracle, "ask", None)
    model = intent(context=16384)
    catalog, one = one_model(tmp_path, model, entry(6000 * MIB, context=16384, ladder=GROWING), 10_000)

    assert contexts.largest(catalog, one, chart.of(one)) == {"chat": Largest(40960, proved=True)}


def test_an_image_limit_of_its_own_is_the_least_that_is_offered(tmp_path):
    names = ["qwen3vl-8b-q4km", "mmproj-qwen3vl-8b-f16"]
    model = intent(context=8192, modalities=["text", "image"], image_max_tokens=4096)
    found = locked(names, model)
    kept(tmp_path, names)
    (needed,) = needs_mib(names, model, 4096 + STEP)
    at_limit = needed - mib(found.predicted.gpu_bytes)

    above, below = (
        contexts.largest(*one_model(tmp_path, model, found, free), chart.of(one_model(tmp_path, model, found, free)[1]))
        for free in (at_limit, at_limit - 1)
    )

    assert (above["chat"], below["chat"]) == (Largest(4096 + STEP, proved=True), Largest(None, proved=True))


@pytest.mark.parametrize("missing", ["headers", "engine"])
def test_where_the_engine_cannot_predict_the_rung_of_the_ladder_is_offered_and_marked(missing, monkeypatch, tmp_path):
    model = intent(context=16384)
    found = locked(["qwen3-8b-q4km"], model)
    if missing == "engine":
        kept(tmp_path, ["qwen3-8b-q4km"])
        monkeypatch.setattr(embedded, "require_available", no_engine)

    for free_mib, rung in ((1000, 16384), (-1000, 8192), (-2200, None)):
        catalog, one = one_model(tmp_path, model, found, free_mib)
        assert contexts.largest(catalog, one, chart.of(one)) == {"chat": Largest(rung, proved=False)}


def no_engine():
    raise ProgramMissing("The embedded engine is not installed.", next_step="")


def test_only_the_present_context_is_known_to_fit_where_nothing_is_predicted():
    one = lock({"t4": card(2000)}, chat=entry(None, vram={"declared_mib": 2000, "why": "read from its log"}))
    short = lock({"t4": card(1999)}, chat=one.models["chat"])

    assert contexts.largest(catalog_of(one), one, chart.of(one)) == {"chat": Largest(4096, proved=False)}
    assert contexts.largest(catalog_of(short), short, chart.of(short)) == {"chat": Largest(None, proved=True)}


def test_no_context_helps_where_another_model_of_the_group_is_too_large():
    one = lock({"t4": card(2000)}, chat=entry(2500 * MIB, ladder=GROWING), other=entry(2400 * MIB))

    assert contexts.largest(catalog_of(one), one, chart.of(one))["chat"] == Largest(None, proved=True)


def test_what_was_measured_above_the_prediction_is_added_for_every_context(monkeypatch):
    needs = {at: (500 + at // 8) * MIB for at in range(STEP, 40961, STEP)}
    monkeypatch.setattr(contexts, "_predict", lambda *arguments: {at: needs[at] for at in arguments[-1]})
    cards = {"t4": card(4000)}
    plain = lock(cards, chat=entry(needs[16384], context=16384, ladder=GROWING))
    more = lock(
        cards,
        chat=entry(needs[16384], context=16384, ladder=GROWING, measured=needs[16384] + 800 * MIB),
    )

    found = [contexts.largest(catalog_of(one), one, chart.of(one))["chat"].tokens for one in (plain, more)]
    assert found == [(8 * 3500) // STEP * STEP, (8 * 2700) // STEP * STEP]


def test_the_search_proves_its_answer_on_300_random_models_in_few_requests():
    dice = random.Random(11549)
    questions = []
    for _ in range(300):
        top = dice.choice((4096, 40960, 131072, 262144))
        grid = sorted({*range(STEP, top + 1, STEP), top})
        slope, window, base = dice.randint(1, 200_000), dice.choice((0, 4096)), dice.randint(0, 1 << 33)
        total = {at: base + at * slope + max(0, at - window) * slope // 3 + dice.randint(0, 4096) for at in grid}
        known = {
            at: total[at] + dice.randint(-4096, 4096) for at in (2048, 4096, 8192, 16384, 32768, top) if at in total
        }
        limit = total[dice.choice(grid)] + dice.choice((-1, 0, 1, 10_000, -(1 << 33)))
        requests = []

        def predict(wanted, total=total, requests=requests):
            assert wanted, "a question without a context would never end"
            requests.append(list(wanted))
            return {at: total[at] for at in wanted}

        found = search(grid, known, lambda predicted, limit=limit: predicted <= limit, predict)

        flat = [at for wanted in requests for at in wanted]
        next_one = grid[0] if found is None else next((at for at in grid if at > found), None)
        assert found is None or (found in flat and total[found] <= limit)
        assert next_one is None or (next_one in flat and total[next_one] > limit)
        questions.append(len(requests))
    assert sum(questions) / len(questions) < 2.5
    assert max(questions) < 10

"""Predicts what one model takes, by the engine and from its headers; or states why the engine cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from corral.agent.lock_file import LockedFile
from corral.catalog import vllm_rules
from corral.catalog.catalog import Catalog
from corral.catalog.intent import Model
from corral.engine import embedded
from corral.engine.embedded import ENGINE
from corral.errors import EngineCannotPredict, ProgramMissing, Refused, UnreadableHeader
from corral.hub.resolved import Resolved
from corral.lock import headers
from corral.lock.task_fit import require_extras, require_model, require_task
from corral.vram import rules, vllm_seat
from corral.vram.gguf_header import GgufHeader, parse_fixture
from corral.vram.oracle import DECLARE
from corral.vram.predict import predict_model, trained_context
from corral.vram.prediction import Prediction, mib
from corral.vram.rules import RULES_VERSION
from corral.vram.vllm_facts import Facts, require_countable


@dataclass(frozen=True)
class Predicted:
    """The prediction for one model, and the headers (by sha256) that it was made from."""

    prediction: Prediction
    headers: Mapping[str, bytes] = field(default_factory=dict)


class Predictor:
    """Runs the embedded engine over headers: those beside the lock where they are there, else from the hub.

    Args:
        catalog: for the folder of the headers, and the lines of a model's file that an error names.
        info: receives a line before and after each request to the hub.
        ready: headers that were read already, by the files that they are of.
    """

    def __init__(
        self,
        catalog: Catalog,
        info: Callable[[str], None] = lambda _: None,
        ready: Mapping[tuple[LockedFile, ...], list[bytes]] | None = None,
    ) -> None:
        self._catalog = catalog
        self._info = info
        self._ready = ready or {}

    def is_current(self, prediction: Prediction, runs: str | None = None) -> bool:
        """Whether *prediction*, made for the same files and command line, would be made again from sound headers."""
        return (
            prediction.engine == ENGINE
            and prediction.rules_version == RULES_VERSION
            and rules.drift_of(prediction) == rules.expected_drift(prediction, runs)
            and all(headers.read(self._catalog.directory, sha256) for sha256 in prediction.headers)
        )

    def predict(
        self,
        model_id: str,
        model: Model,
        resolved: Resolved,
        argv: Sequence[str],
        known: Sequence[str] = (),
        runs: str | None = None,
    ) -> Predicted:
        """The prediction for a model.

        Args:
            model_id: the catalog's name of the model.
            model: its intent.
            resolved: its files.
            argv: its command line.
            known: the headers of exactly these files by name, when there are any.
            runs: the build of llama.cpp in the image that runs it; None where no image is named.

        Raises:
            UnreadableHeader: a file's header cannot be read, and nothing is declared.
            EngineCannotPredict: the engine cannot, and nothing is declared.
            NoModel: the file is an adapter or a projector.
            Refused: the context is above the trained one, or the weights are for another task.
            HubUnavailable: the header could not be fetched.
            ProgramMissing: there is no engine here.
        """
        packed: list[bytes] = []
        names: list[str] = []
        try:
            kept = [header for sha256 in known if (header := headers.read(self._catalog.directory, sha256))]
            packed = kept if len(kept) == len(resolved.files) else self._read(model_id, resolved)
            names = [headers.sha256_of(header) for header in packed]
            parsed = [parse_fixture(header) for header in packed]
            require_model(parsed[0])
            self._require_trained(model_id, model, parsed[0])
            require_task(model_id, model, parsed, argv)
            require_extras(model, parsed, argv)
            found = predict_model(model_id, model, resolved.files, parsed, argv, names=names, runs=runs)
        except (UnreadableHeader, EngineCannotPredict) as error:
            if model.vram is None:
                offer = "" if DECLARE in error.next_step else f", {DECLARE}"
                raise type(error)(error.message, next_step=f"{error.next_step}{offer}") from None
            found = Prediction(
                engine=ENGINE, rules_version=RULES_VERSION, headers=tuple(names), unmeasured=error.message
            )
        except ProgramMissing as error:
            raise ProgramMissing(
                f"what it takes on the card cannot be predicted here: {error.message}",
                next_step=f"pip install xllamacpp=={embedded.WHEEL_VERSION} (Linux, or macOS on arm64), or run corral "
                "lock on such a machine and commit lock.json and headers/",
            ) from None
        return Predicted(found, dict(zip(names, packed, strict=True)))

    def predict_vllm(self, model_id: str, model: Model, resolved: Resolved, known: Sequence[str] = ()) -> Predicted:
        """The prediction for a model that vLLM serves, by the rules; of the card only its capability counts.

        Args:
            model_id: the catalog's name of the model.
            model: its intent, with ``engine: vllm``.
            resolved: its files.
            known: the sha256 under which the facts of exactly these files are kept, where they are.

        Raises:
            UnreadableHeader: a header cannot be read.
            EngineCannotPredict: the rules do not count such a model, and nothing is declared.
            Refused: the card cannot run its weights, or the context is above the trained one.
            HubUnavailable: the header could not be fetched.
        """
        kept = next((one for name in known if (one := headers.read(self._catalog.directory, name))), None)
        try:
            facts = Facts.parse(kept) if kept is not None else self._read_facts(model_id, resolved)
            digest = headers.sha256_of(facts.kept())
            card = self._catalog.cards[model.card]
            if facts.quantisation and (why := vllm_rules.no_quantisation(facts.quantisation, model.card, card)):
                raise Refused(f"{why}.", next_step="Choose a repository with other weights, or another card")
            if model.context > facts.trained:
                raise Refused(
                    f"its context is {model.context:,}, and it was trained for {facts.trained:,} tokens: vLLM does not "
                    f"start ({self._catalog.place(model_id, 'context')}).",
                    next_step=f"Set context to {facts.trained} or less in {model_id}.yaml",
                )
            require_countable(model_id, facts)
            found = vllm_seat.predict(facts, model, digest)
        except EngineCannotPredict as error:
            if model.vram is None:
                raise
            return Predicted(
                Prediction(
                    engine=vllm_seat.ENGINE,
                    rules_version=vllm_seat.RULES_VERSION,
                    headers=(),
                    unmeasured=error.message,
                )
            )
        return Predicted(found, {} if kept is not None else {digest: facts.kept()})

    def _read_facts(self, model_id: str, resolved: Resolved) -> Facts:
        from corral.hub.folder import read_facts

        return read_facts(model_id, resolved, say=self._info)

    def _read(self, model_id: str, resolved: Resolved) -> list[bytes]:
        if resolved.files in self._ready:
            return self._ready[resolved.files]
        from corral.hub.gguf_range import read_headers

        return read_headers(model_id, resolved, self._catalog.directory, say=self._info)

    def _require_trained(self, model_id: str, model: Model, header: GgufHeader) -> None:
        trained = trained_context(header)
        if trained is None or model.context <= trained or _stretches_positions(model):
            return
        factor = -(-model.context // trained)
        raise Refused(
            f"its context is {model.context:,}, and it was trained for {trained:,} tokens: beyond that answers fall "
            f"apart ({self._catalog.place(model_id, 'context')}).",
            next_step=f"Set context to {trained} or less in {model_id}.yaml, or scale RoPE: "
            f"args: {{rope-scaling: yarn, rope-scale: {factor}}}",
        )


def require_declared(catalog: Catalog, model_id: str, model: Model, prediction: Prediction) -> None:
    """Refuse a declaration below the prediction.

    Raises:
        Refused: what the intent of *model_id* declares is less than the engine predicts.
    """
    needed = mib(prediction.gpu_bytes or 0)
    if model.vram and model.vram.declared_mib < needed:
        raise Refused(
            f"its vram declares {model.vram.declared_mib:,} MiB, and the engine predicts {needed:,} MiB for its "
            "command line; a declaration may only add to a prediction "
            f"({catalog.place(model_id, 'vram', 'declared_mib')}).",
            next_step=f"Remove vram from {model_id}.yaml, or set declared_mib to {needed} or more",
        )


def _stretches_positions(model: Model) -> bool:
    """Whether RoPE is scaled: ``rope-freq-base`` alone does it too, ``yarn-*`` only shapes it."""

    def number(name: str, default: float) -> float:
        try:
            return float(model.args.get(name, default))
        except (TypeError, ValueError):
            return default

    way = model.args.get("rope-scaling", "")
    stretched = number("rope-scale", 1) > 1 or 0 < number("rope-freq-scale", 1) < 1 or number("rope-freq-base", 0) > 0
    return way != "none" and (way != "" or stretched)

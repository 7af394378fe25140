"""Collects the evidence of a cluster and has it judged by the same rules.

From outside, a cluster shows less than this machine does: llama-swap's own word and log, what an engine said, and what
Kubernetes says of the pod.  No process, port or file can be looked at, and no rule that needs them speaks; where that
leaves a question open the answer is ``unknown``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from corral.cluster import diagnosis, summary
from corral.cluster.client import Cluster
from corral.cluster.collect import collect
from corral.cluster.container_rules import missing_file
from corral.cluster.finding import Cause, Finding
from corral.cluster.port_forward import forwarded
from corral.cluster.snapshot import is_ready, pod_spec
from corral.cluster.target import ClusterTarget
from corral.engine import log_lines
from corral.engine.llama_swap import LlamaSwap
from corral.engine.log_lines import EngineError
from corral.errors import CannotRun
from corral.parallel import Result, read_all, value_of
from corral.why import command, history, names
from corral.why.answer import Answer, Reason
from corral.why.case import Case
from corral.why.command import Command
from corral.why.facts import ClusterPlace, ModelFacts, Place, StackFacts
from corral.why.history import History
from corral.why.verdict import judge

_LIMIT_S = 5.0
_LOG = {"tailLines": "20000", "limitBytes": str(8 << 20)}


def ask(cluster: Cluster, where: ClusterTarget, catalog: Path, shown: Path | None, model: str | None) -> list[Answer]:
    """The answers for *model*, or for every model of the catalog, the worst first.

    Args:
        cluster: that answers.
        where: in it.
        catalog: the folder of the catalog.
        shown: the same, where commands must name it.
        model: an id or an alias; None: all.

    Raises:
        Refused: the catalog has no model.
        CannotRun: nothing of the namespace can be seen.
    """
    at = ClusterPlace(cluster.context, cluster.kubeconfig, where.namespace, where.service)
    return _Investigation(cluster, where, catalog, Place(catalog=shown, cluster=at)).answers(model)


class _Investigation:
    def __init__(self, cluster: Cluster, where: ClusterTarget, catalog: Path, place: Place) -> None:
        self._cluster, self._where, self._place, self._catalog = cluster, where, place, catalog
        self._now = time.time()
        self._namespace = collect(cluster, where.namespace)
        self._findings = diagnosis.findings(self._namespace)
        self._aliases = names.read(catalog)
        self._stack = StackFacts("answers", where.url, catalog=catalog)

    def answers(self, model: str | None) -> list[Answer]:
        asked = self._ids() if model is None else (model,)
        pod = next((pod for pod in self._namespace.server_pods if is_ready(pod)), None)
        if pod is None:
            return [self._down(one) for one in asked]
        with ExitStack() as stack:
            try:
                root = stack.enter_context(forwarded(self._cluster, self._where.namespace, self._where.service))
            except CannotRun as error:
                return [self._answer(one, Reason.UNKNOWN, "", [error.message], [error.next_step]) for one in asked]
            return self._served(LlamaSwap(root, limit_s=_LIMIT_S), str(pod["metadata"]["name"]), asked)

    # -- llama-swap cannot be asked -------------------------------------------------------------------------

    def _down(self, model: str) -> Answer:
        """No pod is ready: what Kubernetes says of it."""
        if model not in self._aliases:
            return self._judged(ModelFacts(model, "", self._ids(), now=self._now))
        told = [line for one in self._findings for line in (f"{one.subject}: {one.what}", one.event)]
        steps = [*(one.next_step for one in self._findings), self._steps(model).status()]
        first = next((one for one in self._findings if one.cause is not Cause.UNSEEN), None)
        blind = {"the pods", "the Deployments"} & self._namespace.unseen.keys()
        if blind or (first is None and self._namespace.unseen):
            return self._answer(model, Reason.UNKNOWN, "", told, steps)
        if first is None:
            pods = self._namespace.server_pods
            phases = [f"{pod['metadata']['name']}: {summary.state(self._namespace, pod)}." for pod in pods]
            told = ["No pod of llama-swap is ready; nothing is known to be wrong with it.", *phases]
            return self._answer(model, Reason.STACK_DOWN, "llama-swap, which is starting", told, steps)
        return self._answer(model, *_blame(first), told, steps)

    # -- llama-swap answers ---------------------------------------------------------------------------------

    def _served(self, client: LlamaSwap, pod: str, asked: tuple[str, ...]) -> list[Answer]:
        log = f"/api/v1/namespaces/{self._where.namespace}/pods/{pod}/log"
        sources: dict[str, Callable[[], Any]] = {
            "/running": client.residents,
            "/v1/models": client.models,
            "the requests in flight": client.in_flight,
            "the last requests": client.exchanges,
            "the log": lambda: self._cluster.text(log, **_LOG),
            "the configuration": self._commands,
        }
        found = read_all(sources, limit_s=2 * _LIMIT_S)
        aliases = self._aliases | {one: one for one in value_of(found, "/v1/models", ())}
        histories = history.read(value_of(found, "the log", ""))
        facts = [self._facts(name, aliases.get(name, ""), found, histories) for name in asked]
        said = read_all(
            {one.model: self._engine_error(client, one) for one in facts if one.history.state == "failed"},
            limit_s=_LIMIT_S,
        )
        judged = [self._judged(_with(one, said, value_of(found, "the log", ""))) for one in facts]
        return sorted(judged, key=lambda one: (one.rank, one.model))

    def _facts(
        self, name: str, model: str, found: Mapping[str, Result[Any]], histories: Mapping[str, History]
    ) -> ModelFacts:
        residents = {one.model: one for one in value_of(found, "/running", ())}
        in_flight = value_of(found, "the requests in flight", ())
        served: Command | None = value_of(found, "the configuration", {}).get(model)
        return ModelFacts(
            model=name,
            id=model,
            catalog_ids=self._ids(),
            command=served,
            resident=residents.get(model),
            history=histories.get(model, History()),
            in_flight=tuple(one for one in in_flight if one.model == model),
            refused=tuple(
                one for one in value_of(found, "the last requests", ()) if (one.model, one.status) == (model, 429)
            ),
            others=tuple((one, sum(ask.model == one for ask in in_flight)) for one in residents if one != model),
            sees_processes=False,
            unseen=tuple(f"{source}: {one.problem}" for source, one in found.items() if one.problem),
            now=self._now,
        )

    def _commands(self) -> dict[str, Command]:
        """How each model is served, from the ConfigMap that the pod mounts."""
        deployment = self._namespace.deployment
        volumes = (pod_spec(deployment).get("volumes") or ()) if deployment else ()
        for volume in volumes:
            name = (volume.get("configMap") or {}).get("name")
            if not name:
                continue
            path = f"/api/v1/namespaces/{self._where.namespace}/configmaps/{name}"
            text = (self._cluster.get(path).get("data") or {}).get("config.yaml")
            if text is not None:
                return command.parse(str(text), f"config.yaml of the ConfigMap {name}", next_step="corral apply")
        raise CannotRun("The Deployment mounts no ConfigMap with a config.yaml.", next_step="corral apply")

    @staticmethod
    def _engine_error(client: LlamaSwap, seen: ModelFacts) -> Callable[[], EngineError | None]:
        def read() -> EngineError | None:
            log = log_lines.last_start(client.model_log(seen.id))
            return history.engine_error(log, seen.history) if log else None

        return read

    def _judged(self, seen: ModelFacts) -> Answer:
        answer = judge(self._stack, seen, self._place)
        # A model that is not served yet may wait for a download that fails.
        waits = [one for one in self._findings if one.cause is Cause.DOWNLOAD] if seen.id and not seen.command else []
        if not waits or answer.reason is not Reason.NOT_IN_CATALOG:
            return answer
        told = [line for one in waits for line in (f"{one.subject}: {one.what}", one.event)]
        steps = [*(one.next_step for one in waits), *answer.next_steps]
        return self._answer(
            seen.model, Reason.FILE_MISSING, "the download, which failed", [*told, *answer.evidence], steps
        )

    def _answer(self, model: str, reason: Reason, culprit: str, evidence: list[str], steps: list[str]) -> Answer:
        return self._case(model).answer(reason, culprit, evidence, steps)

    def _case(self, model: str) -> Case:
        return Case(
            self._stack, ModelFacts(model, self._aliases.get(model, ""), self._ids(), now=self._now), self._place
        )

    def _steps(self, model: str) -> Any:
        return self._case(model).steps

    def _ids(self) -> tuple[str, ...]:
        return tuple(sorted(set(self._aliases.values())))


def _blame(finding: Finding) -> tuple[Reason, str]:
    """The class of what keeps llama-swap from being ready, and who is behind it."""
    if finding.cause is Cause.MEMORY:
        return Reason.OUT_OF_MEMORY, "the memory limit of the pod"
    if finding.cause is Cause.PROBE and (path := missing_file(finding.event)):
        return Reason.FILE_MISSING, path
    return Reason.STACK_DOWN, f"{finding.subject}, which {finding.what}".rstrip(".")


def _with(seen: ModelFacts, said: Mapping[str, Result[Any]], log: str) -> ModelFacts:
    """With what its engine said: by its own log, else by the pod's."""
    own = said.get(seen.model, Result()).value
    if own is None and seen.history.failures:
        common = history.engine_error(history.log_of(log, seen.id, seen.history), seen.history)
        own = common if common.decides or seen.history.alone else None
    return replace(seen, error=own)

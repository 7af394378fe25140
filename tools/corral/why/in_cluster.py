"""Collects the evidence of a cluster and has it judged by the same rules.

From outside, a cluster shows less than this machine does: llama-swap's state and log, the engines' logs, and what
Kubernetes reports of the pod.  No process, port or file can be read, so no rule that needs them applies; where that
leaves a question open the verdict is ``unknown``.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from corral.card import remote
from corral.cluster import diagnosis, engine_probe, exporters, summary
from corral.cluster.client import Cluster
from corral.cluster.collect import collect
from corral.cluster.container_rules import missing_file
from corral.cluster.finding import Cause, Finding
from corral.cluster.served import served
from corral.cluster.snapshot import SERVER, Snapshot, is_ready, name_of, pod_spec
from corral.cluster.target import ClusterTarget
from corral.engine import command
from corral.engine.command import Command
from corral.engine.llama_swap import LlamaSwap
from corral.errors import CannotRun, CorralError, Refused
from corral.exporter.account import CardAccount
from corral.parallel import Result, read_all, value_of
from corral.why import evidence, history
from corral.why.case import Case
from corral.why.facts import ModelFacts, StackFacts
from corral.why.next_steps import StepOptions
from corral.why.rules import judge
from corral.why.verdict import Reason, Verdict, worst_first

_LIMIT_S = 5.0
_ACCOUNT = "the account of the card"
_LOG = {"container": SERVER, "tailLines": "20000", "limitBytes": str(8 << 20)}


def investigate(
    cluster: Cluster, target: ClusterTarget, catalog: Path, shown: Path | None, name: str | None
) -> list[Verdict]:
    """The verdict on the model *name*, an id or an alias, or on every model of *catalog*, the worst first.

    *shown* is the catalog where commands must name it.

    Raises:
        Refused: the catalog has no model.
        CannotRun: nothing of the namespace can be read.
    """
    target = replace(target, context=cluster.context, kubeconfig=cluster.kubeconfig)
    snapshot, ids = collect(cluster, target.namespace), evidence.model_ids(catalog)
    names = sorted(set(ids.values())) if name is None else [name]
    parts = [_Investigation(cluster, target, catalog, shown, snapshot, card) for card in snapshot.cards]
    if len(parts) == 1:
        return parts[0].verdicts(names)
    part_of = {model: part for part in parts for model in part.served_models()}
    first = next((part for part in parts if part.is_ready), parts[0])
    found = []
    for part in parts:
        own = [one for one in names if part_of.get(ids.get(one, one), first) is part]
        found += [part.named(one) for one in part.verdicts(own)] if own else []
    return worst_first(found)


class _Investigation:
    """Of the models of one card; *card* has no name where there is one."""

    def __init__(
        self, cluster: Cluster, target: ClusterTarget, catalog: Path, shown: Path | None, whole: Snapshot, card: str
    ) -> None:
        self._target = replace(target, service=whole.service_of(card) or target.service)
        self._cluster, self._card, self._options = cluster, card, StepOptions(catalog=shown, cluster=self._target)
        self._now = time.time()
        self._snapshot = whole.of_card(card)
        self._findings = diagnosis.findings(self._snapshot)
        self._ids = evidence.model_ids(catalog)
        ids = tuple(sorted(set(self._ids.values())))
        self._stack = StackFacts("running", target.url, has_nvidia_smi=True, catalog=catalog, catalog_ids=ids)

    @property
    def is_ready(self) -> bool:
        """Whether a pod of the card is ready."""
        return any(map(is_ready, self._snapshot.server_pods))

    def served_models(self) -> Collection[str]:
        """The models that the card's llama-swap is configured with; none where that cannot be read."""
        with suppress(CorralError):
            return self._commands().keys()
        return ()

    def named(self, verdict: Verdict) -> Verdict:
        """*verdict* with the card among its evidence."""
        return replace(verdict, evidence=(f"The model is on card {self._card}.", *verdict.evidence))

    def verdicts(self, names: Sequence[str]) -> list[Verdict]:
        """The verdict on each of *names*, ids or aliases."""
        if not any(map(is_ready, self._snapshot.server_pods)):
            return self._of_llama_swap(names)
        beside = [name for name in names if self._ids.get(name) in self._snapshot.model_deployments]
        others = [name for name in names if name not in beside]
        return worst_first([*map(self._beside, beside), *(self._of_llama_swap(others) if others else ())])

    def _beside(self, name: str) -> Verdict:
        """Of a model with a pod of its own, to which llama-swap passes requests on: what Kubernetes reports of it."""
        case, model = self._case(name), self._ids[name]
        owner, pod = self._snapshot.model_deployments[model], self._snapshot.model_pods.get(model)
        subjects = {f"deployment/{name_of(owner)}", f"pod/{name_of(pod)}" if pod else ""}
        lines, steps = _reported([one for one in self._findings if one.subject in subjects])
        if pod and is_ready(pod):
            steps.append(self._snapshot.kubectl("logs", f"pod/{name_of(pod)}"))
            return case.verdict(Reason.HEALTHY, "", [f"Its pod {name_of(pod)} is ready.", *lines], steps)
        state = f"Its pod {name_of(pod)}: {summary.state(self._snapshot, pod)}." if pod else "It has no pod."
        steps += [] if steps else [self._snapshot.kubectl("describe", f"deployment/{name_of(owner)}")]
        return case.verdict(Reason.STACK_DOWN, f"vLLM, in deployment/{name_of(owner)}", [state, *lines], steps)

    def _of_llama_swap(self, names: Sequence[str]) -> list[Verdict]:
        pod = next(filter(is_ready, self._snapshot.server_pods), None)
        if pod is None:
            return [self._no_pod(one) for one in names]
        with ExitStack() as stack:
            try:
                client = stack.enter_context(served(self._cluster, self._target, limit_s=_LIMIT_S, alone=True))
            except (CannotRun, Refused) as error:
                lines, steps = [error.message], [error.next_step]
                return [self._case(one).verdict(Reason.UNKNOWN, "", lines, steps) for one in names]
            return self._served(client, str(pod["metadata"]["name"]), names)

    def _case(self, name: str) -> Case:
        return Case(self._stack, ModelFacts(name, self._ids.get(name, ""), now=self._now), self._options)

    # -- no pod is ready --------------------------------------------------------------------------------------

    def _no_pod(self, name: str) -> Verdict:
        case = self._case(name)
        if not case.facts.id:
            return judge(self._stack, case.facts, self._options)
        lines, steps = _reported(self._findings)
        steps += case.steps("status")
        first = next((one for one in self._findings if one.cause is not Cause.UNSEEN), None)
        missing = self._snapshot.unread.keys()
        if {"the pods", "the Deployments"} & missing or (first is None and missing):
            return case.verdict(Reason.UNKNOWN, "", lines, steps)
        if first is None:
            pods = self._snapshot.server_pods
            phases = [f"{pod['metadata']['name']}: {summary.state(self._snapshot, pod)}." for pod in pods]
            lines = ["No pod of llama-swap is ready; no fault is known.", *phases]
            return case.verdict(Reason.STACK_DOWN, "llama-swap, which is starting", lines, steps)
        return case.verdict(*_blame(first), lines, steps)

    # -- llama-swap responds ----------------------------------------------------------------------------------

    def _served(self, client: LlamaSwap, pod: str, names: Sequence[str]) -> list[Verdict]:
        path = f"/api/v1/namespaces/{self._target.namespace}/pods/{pod}/log"
        sources = {
            **evidence.sources(client),
            "/v1/models": client.models,
            "the log": lambda: self._cluster.text(path, **_LOG),
            "the configuration": self._commands,
        }
        found = read_all(sources | {_ACCOUNT: self._read_card}, limit_s=2 * _LIMIT_S)
        account = found.pop(_ACCOUNT)
        ids = self._ids | {one: one for one in value_of(found, "/v1/models", ())}
        log, commands = value_of(found, "the log", ""), value_of(found, "the configuration", {})
        histories = history.read(log)
        models = [evidence.model_facts(one, ids.get(one, ""), found, commands, histories, self._now) for one in names]
        probed = engine_probe.probes(self._cluster, self._target, value_of(found, "/running", ()))
        failed = {one.name: partial(evidence.engine_error, client, one) for one in models if one.history.has_engine_log}
        errors = read_all(failed, limit_s=_LIMIT_S)
        facts = []
        for one in models:
            error = value_of(errors, one.name, None) or history.error_in_common_log(log, one.id, one.history)
            probe = value_of(probed, one.id, None)
            facts.append(replace(one, error=error, probe=probe, can_see_processes=False))
        self._stack = self._with_card(account)
        return worst_first(map(self._judged, facts))

    def _with_card(self, found: Result[Any]) -> StackFacts:
        """The facts of the stack, with the account of its card that was *found*: no account is no missing evidence."""
        if found.value is None:
            problem = (
                found.problem or "the cluster has no exporter for this llama-swap (card_exporter = {} installs it)"
            )
            return replace(self._stack, no_account=f"Who holds the card is not known: {problem.rstrip('.')}.")
        namespace, cards = found.value
        problems = " ".join(one.problem for one in cards if one.problem)
        return replace(self._stack, exporter=namespace, cards=cards, no_account=problems)

    def _read_card(self) -> tuple[str, tuple[CardAccount, ...]] | None:
        """The exporter's namespace and its cards; None: there is no exporter."""
        namespaces = exporters.find(self._cluster, of=self._target.namespace)
        if len(namespaces) > 1:
            step = remote.command(self._cluster, namespaces[0])
            raise CannotRun(f"several exporters know this llama-swap, in {', '.join(namespaces)}", next_step=step)
        if not namespaces:
            return None
        cards = remote.read(self._cluster, namespace=namespaces[0]).cards
        return namespaces[0], tuple(one for one in cards if self._card in ("", one.name))

    def _commands(self) -> dict[str, Command]:
        """How each model is served, from the ConfigMap that the pod mounts."""
        deployment = self._snapshot.deployment
        volumes = (pod_spec(deployment).get("volumes") or ()) if deployment else ()
        for name in ((volume.get("configMap") or {}).get("name") for volume in volumes):
            path = f"/api/v1/namespaces/{self._target.namespace}/configmaps/{name}"
            text = (self._cluster.get(path).get("data") or {}).get("config.yaml") if name else None
            if text is not None:
                return command.parse(str(text), f"config.yaml of the ConfigMap {name}", next_step="corral apply")
        raise CannotRun("The Deployment mounts no ConfigMap with a config.yaml.", next_step="corral apply")

    def _judged(self, facts: ModelFacts) -> Verdict:
        verdict = judge(self._stack, facts, self._options)
        downloads = [one for one in self._findings if one.cause is Cause.DOWNLOAD]
        if not downloads or not facts.id or facts.command or verdict.reason is not Reason.NOT_IN_CATALOG:
            return verdict
        # A model that is not served yet waits for a download that fails.
        lines, steps = _reported(downloads)
        return self._case(facts.name).verdict(
            Reason.FILE_MISSING,
            "the download, which failed",
            [*lines, *verdict.evidence],
            [*steps, *verdict.next_steps],
        )


def _reported(findings: Sequence[Finding]) -> tuple[list[str], list[str]]:
    """The evidence and the next steps of *findings*."""
    lines = [line for one in findings for line in (f"{one.subject}: {one.what}", one.event)]
    return lines, [one.next_step for one in findings]


def _blame(finding: Finding) -> tuple[Reason, str]:
    """The reason and the culprit when *finding* keeps llama-swap from being ready."""
    if finding.cause is Cause.MEMORY:
        return Reason.OUT_OF_MEMORY, "the memory limit of the pod"
    if finding.cause is Cause.PROBE and (path := missing_file(finding.event)):
        return Reason.FILE_MISSING, path
    return Reason.STACK_DOWN, f"{finding.subject}, which {finding.what}".rstrip(".")

"""What a destroy of the homelab removes beside Terraform's own objects, what it leaves, and why."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from corral.cluster import contents, exporters, keys, versions
from corral.cluster.client import Cluster
from corral.cluster.contents import Contents
from corral.terraform import adoption

_VOLUME, _CLAIM = "kubernetes_persistent_volume_v1", "kubernetes_persistent_volume_claim_v1"
_NAMESPACE, _JOB, _DAEMON_SET = "kubernetes_namespace_v1", "kubernetes_job_v1", "kubernetes_daemon_set_v1"
_HOST = "kubernetes.io/hostname"


@dataclass(frozen=True)
class Remaining:
    """Something that a destroy leaves."""

    what: str
    why: str  # a clause
    remove: str  # the command that removes it, or what to do
    path: str = ""  # of the object at the API server; empty: it is none

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(frozen=True)
class Remains:
    """Of a destroy.

    Attributes:
        stays: what it leaves.
        goes: by the name of a namespace that it removes: what is in there that is not corral's.
    """

    stays: tuple[Remaining, ...]
    goes: Mapping[str, Contents]

    def warnings(self) -> list[str]:
        """A sentence for each namespace whose foreign objects go, or may go, with it."""
        found = []
        for namespace, one in self.goes.items():
            if one.members:
                names = ", ".join(map(str, one.members))
                found.append(f"namespace {namespace} is removed with all in it, also what is not corral's: {names}")
            if one.unread:
                found.append(f"what else is in namespace {namespace} is not known: {'; '.join(one.unread)}")
        return found

    def as_json(self) -> dict[str, Any]:
        """The shape of ``--json``."""
        return {
            "stays": [{key: value for key, value in asdict(one).items() if key != "path"} for one in self.stays],
            "foreign": [
                {"namespace": namespace, "kind": member.kind, "name": member.name}
                for namespace, one in self.goes.items()
                for member in one.members
            ],
            "unread": [problem for one in self.goes.values() for problem in one.unread],
        }


def of_destroy(document: Mapping[str, Any], cluster: Cluster | None, state: Remaining | None) -> Remains:
    """What the plan *document* of a destroy (``terraform show -json``) leaves, and takes along.

    Args:
        document: the plan.
        cluster: where the objects are; None where the plan removes none.
        state: what is left of Terraform's own; None: nothing.

    Raises:
        Refused: the user may not read what a namespace has.
        CannotRun: the API server does not respond.
    """
    removed = [one for one in document.get("resource_changes", ()) if one["change"]["actions"] == ["delete"]]
    objects = list(adoption.to_remove(document))
    namespaces = [one.name for one in objects if one.type == _NAMESPACE]
    kept = sorted({one.namespace for one in objects} - {*namespaces, ""})
    stays = [*_files(removed), *_records(removed)]
    goes = {}
    if cluster:
        stays += [*_claims(document, cluster, objects, kept), *_secrets(cluster, removed, kept)]
        for name in namespaces:
            ours = {contents.Member(one.kind, one.name) for one in objects if one.namespace == name}
            goes[name] = contents.foreign(cluster, name, ours)
    return Remains(stays=(*stays, *([state] if state else [])), goes=goes)


def left(remains: Remains, cluster: Cluster | None) -> tuple[Remaining, ...]:
    """What of *remains* is there after the destroy."""
    return tuple(
        one for one in remains.stays if cluster is None or not one.path or contents.may_exist(cluster, one.path)
    )


def _files(removed: Sequence[Mapping[str, Any]]) -> Iterator[Remaining]:
    why = "the volume has the reclaim policy Retain, and the next apply finds them"
    for one in removed:
        if one["type"] == _VOLUME:
            before = one["change"]["before"]
            for nfs in _all(before, "nfs"):
                place, path = f"on {nfs['server']}", nfs["path"]
                yield Remaining(f"the models in {nfs['server']}:{path}", why, _empty(place, path))
            for local in _all(before, "local"):
                place = f"on node {', '.join(_hosts(before))}"
                yield Remaining(f"the models in {local['path']} {place}", why, _empty(place, local["path"]))


def _empty(place: str, path: str) -> str:
    return f"{place}: find {shlex.quote(path)} -mindepth 1 -delete"


def _records(removed: Sequence[Mapping[str, Any]]) -> Iterator[Remaining]:
    for one in removed:
        if one["type"] == _DAEMON_SET:
            place = f"on node {', '.join(_hosts(one['change']['before']))}"
            for found in _all(one["change"]["before"], "host_path"):
                if found.get("type") == "DirectoryOrCreate":
                    what = f"the exporter's records in {found['path']} {place}"
                    yield Remaining(what, "they are the node's", f"{place}: rm -r {shlex.quote(found['path'])}")


def _claims(
    document: Mapping[str, Any], cluster: Cluster, objects: Sequence[adoption.Planned], kept: Sequence[str]
) -> Iterator[Remaining]:
    """The claim that was there before the stack, with its namespace."""
    ours = {one.name for one in objects if one.type == _CLAIM}
    store = (document.get("output_changes", {}).get("store") or {}).get("before") or {}
    for namespace in kept:
        if (name := store.get("claim")) and name not in ours:
            path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"
            command = cluster.kubectl("delete", f"persistentvolumeclaim/{name}", namespace=namespace)
            what = f"persistentvolumeclaim/{name} of namespace {namespace}, with the models"
            yield Remaining(what, "it was there before the stack", command, path)
        command = cluster.kubectl("delete", f"namespace/{namespace}")
        yield Remaining(
            f"namespace/{namespace}", "it was there before the stack", command, f"/api/v1/namespaces/{namespace}"
        )


def _secrets(cluster: Cluster, removed: Sequence[Mapping[str, Any]], kept: Sequence[str]) -> Iterator[Remaining]:
    """Secrets in namespaces that stay, and the versions of adapters that were chosen: Terraform knows neither."""
    why = {
        keys.SECRET: "corral made it, and no key is in Terraform's state",
        exporters.SECRET: "corral made it, and no key is in Terraform's state",
    }
    chosen = f"configmap/{versions.CONFIG_MAP}", "`corral adapters` made it"
    jobs = [one["change"]["before"] for one in removed if one["type"] == _JOB]
    why |= {one["secret_name"]: "you made it" for job in jobs for one in _all(job, "secret") if one.get("secret_name")}
    for namespace in kept:
        for one, reason in (*((f"secret/{name}", reason) for name, reason in why.items()), chosen):
            kind, _, name = one.partition("/")
            path = f"/api/v1/namespaces/{namespace}/{kind}s/{name}"
            if contents.may_exist(cluster, path):
                command = cluster.kubectl("delete", one, namespace=namespace)
                yield Remaining(f"{one} of namespace {namespace}", reason, command, path)


def _all(value: Any, block: str) -> Iterator[Mapping[str, Any]]:
    """Every block of that name inside *value*; Terraform has a block as a list."""
    for key, one in value.items() if isinstance(value, dict) else ():
        if key == block and isinstance(one, list):
            yield from one
        yield from _all(one, block)
    for one in value if isinstance(value, list) else ():
        yield from _all(one, block)


def _hosts(value: Any) -> list[str]:
    """The nodes that an affinity inside *value* names."""
    expressions = (one for one in _all(value, "match_expressions") if one.get("key") == _HOST)
    return sorted({str(name) for one in expressions for name in one.get("values") or ()})


def of_file(file: Path) -> Remaining:
    """The file of Terraform's state, and its backups."""
    why = "a destroy takes the objects out of it, and its backup has them"
    return Remaining(f"Terraform's state {file}", why, f"rm {shlex.quote(str(file))}*")


def of_postgresql(schema: str) -> Remaining:
    """The state in PostgreSQL."""
    command = f'psql "$PG_CONN_STR" -c \'DROP SCHEMA "{schema}" CASCADE\''
    why = "a destroy takes the objects out of it"
    return Remaining(f"Terraform's state in PostgreSQL, schema {schema}", why, command)

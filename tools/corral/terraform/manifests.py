"""The homelab as plain Kubernetes manifests, made from Terraform's own plan: one renderer, two ways to apply it.

The provider names attributes as Terraform does, and has every block as a list.  What they are in the API is read from
the classes of the Python client, which are generated from Kubernetes' OpenAPI description.  An attribute that is in
neither is refused: no manifest lacks something that Terraform would apply.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from corral.errors import Refused
from corral.files import write_atomically
from corral.terraform.adoption import PATHS, PROVIDERS_OWN

_HEAD: Final = "# Written by corral render --manifests: change the catalog or terraform.tfvars, not this file.\n"
_KUSTOMIZATION: Final = "kustomization.yaml"
_OWN_FILE: Final = re.compile(r"[a-z]+(?:-[a-z0-9.-]+)?\.yaml")
_LABELS_ALONE: Final = "kubernetes_labels"
_FIRST: Final = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "PersistentVolume")
_SET_BY_THE_SERVER: Final = frozenset(
    {
        *("api_group", "cluster_ip", "cluster_ips", "completion_mode", "default_secret_name"),
        *("external_traffic_policy", "generation", "health_check_node_port", "hostname", "id", "image_pull_policy"),
        *("image_pull_secrets", "internal_traffic_policy", "ip_families", "ip_family_policy", "node_affinity"),
        *("node_name", "node_port", "readiness_gate", "resource_version", "restart_policy", "rolling_update"),
        *("scheduler_name", "selector", "session_affinity_config", "status", "strategy"),
        *("spec.template.metadata.name", "termination_message_policy", "uid", "volume_mode"),
    }
)
"""What a plan may not know before its apply, as the API server sets it where nothing is set: a path, or its end."""
_OTHERWISE_NAMED: Final = {("V1DaemonSetSpec", "strategy"): "updateStrategy"}
_LIFTED: Final = {("V1PersistentVolumeSpec", "persistent_volume_source")}
"""Blocks whose attributes are those of the object around them in the API."""
_OCTAL: Final = frozenset({"default_mode", "mode"})
_EMPTY_MEANS_SOMETHING: Final = frozenset({"storage_class_name"})  # "": none, and not the cluster's default
_SETS: Final = frozenset({"mount_options"})
"""Sets of the provider that are lists in the API, and may have several elements here."""
_LIST, _MAP = re.compile(r"List\[(.+)\]"), re.compile(r"Dict\[str, (.+)\]")


@dataclass(frozen=True)
class Manifest:
    """An object as ``kubectl apply`` takes it.

    Attributes:
        kind: e.g. ``Deployment``.
        namespace: empty for an object of the whole cluster.
        name: its name.
        document: the object.
    """

    kind: str
    namespace: str
    name: str
    document: Mapping[str, Any]

    @property
    def file(self) -> str:
        """The name of its file: no two objects of a cluster have the same."""
        return "-".join(filter(None, (self.kind.lower(), self.namespace, self.name))) + ".yaml"


def of_plan(document: Mapping[str, Any]) -> Sequence[Manifest]:
    """The objects that the plan *document* (``terraform show -json``), made without a state, would create.

    In the order in which they can be created.

    Raises:
        Refused: the plan does not know all of an object, or has an attribute that this does not know.
    """
    found = []
    for one in document["resource_changes"]:
        if not one["type"].startswith("kubernetes_") or one.get("mode") == "data":
            continue
        unknown = {path for path in _unknown(one["change"].get("after_unknown")) if not _is_the_servers(path)}
        if unknown:
            raise _refused(one["address"], f"{', '.join(sorted(unknown))} is known only after an apply")
        found.append(_manifest(one["address"], one["type"], one["change"]["after"]))
    return sorted(found, key=lambda one: (_place(one.kind), one.namespace, one.kind, one.name))


def changes(folder: Path, manifests: Sequence[Manifest]) -> dict[str, str | None]:
    """The files of *folder* that *manifests* change, by name: the new text, or None where one is removed.

    Raises:
        Refused: *folder* has a kustomization that this did not write, or a file of it cannot be read.
    """
    texts = {one.file: f"{_HEAD}{_yaml(one.document)}" for one in manifests}
    texts[_KUSTOMIZATION] = f"{_HEAD}{_yaml(_kustomization([one.file for one in manifests]))}"
    found: dict[str, str | None] = {name: text for name, text in texts.items() if _text(folder / name) != text}
    return found | dict.fromkeys(name for name in _written(folder) if name not in texts)


def write(folder: Path, changed: Mapping[str, str | None]) -> None:
    """Make *changed* of ``changes`` in *folder*; the kustomization last, so that it names only files that are there.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in sorted(changed.items(), key=lambda one: (one[1] is None, one[0] == _KUSTOMIZATION)):
        if text is None:
            (folder / name).unlink(missing_ok=True)
        else:
            write_atomically(folder / name, text)


def _written(folder: Path) -> Sequence[str]:
    """The files that an earlier run wrote into *folder*."""
    text = _text(folder / _KUSTOMIZATION)
    if text is None:
        return ()
    if not text.startswith(_HEAD):
        raise Refused(
            f"{folder / _KUSTOMIZATION} was not written by corral, and would be replaced.",
            next_step="Name a folder of its own, and that in your kustomization: resources: [FOLDER]",
        )
    resources = yaml.safe_load(text)["resources"]
    return [name for name in resources if _OWN_FILE.fullmatch(str(name))]


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Refused(f"{file} cannot be read: {error}.", next_step=f"ls -l {file}") from None


def _kustomization(files: Sequence[str]) -> Mapping[str, Any]:
    return {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": list(files)}


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


class _Dumper(yaml.SafeDumper):
    """A text of several lines stands as it is."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def _place(kind: str) -> int:
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _is_the_servers(path: str) -> bool:
    return path in _SET_BY_THE_SERVER or path.rpartition(".")[2] in _SET_BY_THE_SERVER


def _unknown(value: Any, path: str = "") -> Iterator[str]:
    """The paths of the attributes that are unknown in *value*."""
    if value is True:
        yield path
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _unknown(one, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for one in value:
            yield from _unknown(one, path)


def _manifest(address: str, kind: str, values: Mapping[str, Any]) -> Manifest:
    if kind == _LABELS_ALONE:
        metadata = {"name": values["metadata"][0]["name"], "labels": values["labels"]}
        return _named({"apiVersion": values["api_version"], "kind": values["kind"], "metadata": metadata})
    if kind not in PATHS:
        raise _refused(address, f"{kind} is none of the types that corral knows")
    model = "V1" + kind.removeprefix("kubernetes_").removesuffix("_v1").title().replace("_", "")
    group = PATHS[kind][0].removeprefix("/apis/").removeprefix("/api/")
    return _named({"apiVersion": group, "kind": model.removeprefix("V1"), **_object(address, values, model)})


def _named(document: Mapping[str, Any]) -> Manifest:
    metadata = document["metadata"]
    return Manifest(document["kind"], metadata.get("namespace", ""), metadata["name"], document)


def _object(place: str, values: Mapping[str, Any], model: str) -> dict[str, Any]:
    """*values* of a block as the API's object of the class *model*; what is not set is left out."""
    from kubernetes.client import models  # slow to import

    types, names = getattr(models, model).openapi_types, getattr(models, model).attribute_map
    kinds = {names[attribute]: kind for attribute, kind in types.items()}
    found: dict[str, Any] = {}
    for key, value in values.items():
        where = f"{place}.{key}"
        if key in PROVIDERS_OWN:
            continue
        if (model, key) in _LIFTED:
            [block] = value
            found |= _object(where, block, model)
        elif value not in (None, [], {}) and (value != "" or key in _EMPTY_MEANS_SOMETHING):
            name = _OTHERWISE_NAMED.get((model, key)) or _api_name(where, key, kinds)
            found[name] = _value(where, sorted(value, key=_hash) if key in _SETS else value, kinds[name])
    return found


def _hash(text: str) -> str:
    """By which the provider orders a set (the plugin SDK's ``schema.HashString``); another order is a conflict."""
    return str(zlib.crc32(text.encode()))


def _api_name(place: str, key: str, kinds: Mapping[str, str]) -> str:
    """The API's name of the attribute *key* among *kinds*: in camel case, and a list in the plural."""
    plain = key.replace("_", "").lower()
    plurals = (plain, f"{plain}s", f"{plain}es", f"{plain.removesuffix('y')}ies")
    name = next((one for plural in plurals for one in kinds if one.lower() == plural), None)
    if name is None:
        raise _refused(place, "Kubernetes has no such field")
    return name


def _value(place: str, value: Any, kind: str) -> Any:
    """*value* as the API's type *kind*, in the words of the client's classes."""
    if items := _LIST.fullmatch(kind):
        return [_value(place, one, items[1]) for one in value]
    if _MAP.fullmatch(kind):
        return dict(value)
    match kind:
        case "int":
            return int(str(value), 8 if place.rpartition(".")[2] in _OCTAL else 10)
        case "object":  # a number or a text, such as a port
            return int(value) if str(value).isdecimal() else value
        case "str" | "bool" | "datetime":
            return value
    if isinstance(value, list):
        if len(value) != 1:
            raise _refused(place, f"{len(value)} blocks are one object in Kubernetes")
        [value] = value
    return _object(place, value or {}, kind)


def _refused(place: str, why: str) -> Refused:
    return Refused(
        f"{place} has no manifest: {why}.",
        next_step="Apply with Terraform: corral apply; and report this: corral render must know it",
    )

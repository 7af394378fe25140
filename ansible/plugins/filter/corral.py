"""Filters for the rules that the roles' variables follow.  They run on the controller and open no connection."""

from __future__ import annotations

import difflib
import ipaddress
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jinja2
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

# The largest private IPv4 network is 10.0.0.0/8; a site gets at most a /29 to /48 of IPv6.
SHORTEST_PREFIX = {4: 8, 6: 16}

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z)({_LABEL}\.)*(?=[^.]*[A-Za-z]){_LABEL}\Z")

_PLAIN_PATH = re.compile(r"[A-Za-z0-9._/-]+\Z")
# The Filesystem Hierarchy Standard: folders of the system with all they hold, and folders that hold those of several programs.
_SYSTEM_FOLDER = re.compile(
    r"/(bin|boot|dev|etc|lib(32|64|x32)?|proc|root|run|sbin|sys|usr)(/.*)?\Z"
    r"|/(home|media|mnt|opt|srv|tmp|var|var/(cache|lib|log|spool|tmp))\Z"
)

# int() also reads "1_6", " 16 " and digits of other scripts, which end up in a file as they are.
_DECIMAL = re.compile(r"(0|-?[1-9][0-9]*)\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_TYPES = {
    "bool": "true or false, without quotes",
    "int": "a whole number in decimal digits",
    "str": "a text",
    "path": "a path",
    "list": "a list, such as [a, b]",
    "dict": "a mapping, such as {key: value}",
    "raw": "a text, a number, true or false",
}


def network_error(value: object, *, host_names: bool = False) -> str:
    """Return why *value* cannot name a client, as the end of a sentence that begins with it; "" for a usable one.

    Usable are an address, a network in CIDR notation whose prefix is at least ``SHORTEST_PREFIX``, and with
    *host_names* a host name.
    """
    accepted = "an IP address, a network or a host name" if host_names else "an IP address or a network"
    text = str(value)
    if host_names and _HOST_NAME.match(text):
        return ""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return f"is not {accepted}"
    shortest = SHORTEST_PREFIX[network.version]
    if network.prefixlen < shortest:
        return f"is a network of more addresses than /{shortest}, the widest that is accepted for IPv{network.version}"
    address, _, prefix = text.partition("/")
    if prefix and ipaddress.ip_address(address) != network.network_address:
        return f"is ambiguous: the network is {network}, the single address {address}"
    if network.network_address.is_unspecified or network.is_multicast:
        return "is not the address of one machine or network"
    return ""


def _address(value: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address that *value* is, with ::ffff:192.0.2.1 as the IPv4 address that it stands for; None for no address."""
    try:
        address = ipaddress.ip_address(str(value))
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def address_error(value: object) -> str:
    """Return why no program can listen on *value*, as the end of a sentence that begins with it; "" for an address."""
    address = _address(value)
    if address is None:
        return "is not an IP address"
    return "is a multicast address, which no machine has" if address.is_multicast else ""


def is_loopback(value: object) -> bool:
    """Whether *value* is an address that only its own machine reaches; False for what is no address."""
    address = _address(value)
    return address is not None and address.is_loopback


def is_unspecified(value: object) -> bool:
    """Whether *value* stands for every address of a machine, in any notation; False for what is no address."""
    address = _address(value)
    return address is not None and address.is_unspecified


def path_error(value: object, *, own: bool = False) -> str:
    """Return why *value* is not a usable absolute path, as the end of a sentence that begins with it; "" for a usable one.

    *own* is for a folder that a role gives to a user or mounts on: no folder of the system, and in plain characters.
    """
    text = str(value)
    if not text.startswith("/"):
        return "is not an absolute path"
    shortest = "/" + posixpath.normpath(text).lstrip("/")
    if shortest == "/":
        return "is the root of the file system"
    if own and not _PLAIN_PATH.match(text):
        return 'has other characters than letters, digits, ".", "_", "-" and "/"'
    if text != shortest:
        return f'is not in its shortest form, which is "{shortest}"'
    if own and _SYSTEM_FOLDER.match(text):
        return "is a folder of the system"
    return ""


def value_errors(variables: Mapping[str, Any], options: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what is wrong with the values that *variables* has for a role's *options* in ``meta/argument_specs.yml``.

    Stricter than Ansible, which converts what it can and then gives the role the value as it was: the text "false",
    which a template takes for true, or a text in place of a list.  Each is a sentence without its full stop.
    """
    found: list[str] = []
    for name, option in options.items():
        if name in variables:
            try:
                found += _value_errors(name, variables[name], option)
            except jinja2.UndefinedError as error:
                found.append(f"{name} cannot be evaluated: {error}")
    return found


def _value_errors(path: str, value: object, option: Mapping[str, Any]) -> Iterator[str]:
    bool(value)  # raises where it is undefined, as its elements do where they are read
    kind, options = option["type"], option.get("options") or {}
    if not _has_type(value, kind):
        yield f"{path} is {_shown(value)}; it must be {_TYPES[kind]}"
    elif isinstance(value, str) and _CONTROL.search(value):
        yield f"{path} is {json.dumps(value)}; it must not have a line end or another control character"
    elif isinstance(value, list):
        for number, element in enumerate(value):
            yield from _value_errors(f"{path}[{number}]", element, {"type": option["elements"], "options": options})
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _value_errors(f"a key of {path}", key, {"type": "str"})
            if key in options or not options:  # the others are unknown_variables
                yield from _value_errors(f"{path}.{key}", inner, options.get(key, {"type": "raw"}))


def _has_type(value: object, kind: str) -> bool:
    if kind == "int":
        return not isinstance(value, bool) and isinstance(value, int | str) and bool(_DECIMAL.match(str(value)))
    if kind == "bool":
        return isinstance(value, bool)
    if kind in ("str", "path"):  # a number is a text without quotes
        return isinstance(value, str | int | float) and not isinstance(value, bool)
    return isinstance(value, {"list": list, "dict": Mapping, "raw": str | int | float}[kind])


def _shown(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, str):
        return f"the text {json.dumps(value, ensure_ascii=False)}"
    if isinstance(value, list | Mapping):
        return "a list" if isinstance(value, list) else "a mapping"
    return json.dumps(value) if isinstance(value, bool) else f"the number {value}"


def argument_errors(variables: Mapping[str, Any], options: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what Ansible's own check of a role's arguments finds in *variables*, as ``validate_argument_spec`` states it."""
    given = {name: variables[name] for name in options if name in variables}
    return [str(message) for message in ArgumentSpecValidator(options).validate(given).error_messages]


def unknown_variables(
    variables: Mapping[str, Any], specifications: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, str]]:
    """Return the variables with a role's prefix, and the keys of known mappings, that no role has.

    Args:
        variables: all variables of a host.
        specifications: role → its options in ``meta/argument_specs.yml``.

    Returns:
        For each its ``name`` and the ``nearest`` known name, "" where none is near; sorted by name.
    """
    options = {name: option for role in specifications.values() for name, option in role.items()}
    prefixes = tuple(f"{role}_" for role in specifications)
    found = [_unknown(name, options) for name in variables if name.startswith(prefixes) and name not in options]
    for name, option in options.items():
        if name in variables:
            found += _unknown_keys(name, variables[name], option)
    return sorted(found, key=lambda entry: entry["name"])


def _unknown_keys(path: str, value: object, option: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    options = option.get("options")
    if not options:
        return
    if isinstance(value, list):
        for number, element in enumerate(value):
            yield from _unknown_keys(f"{path}[{number}]", element, option)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if key in options:
                yield from _unknown_keys(f"{path}.{key}", inner, options[key])
            else:
                yield _unknown(str(key), options, f"{path}.")


def _unknown(name: str, known: Iterable[str], path: str = "") -> dict[str, str]:
    nearest = difflib.get_close_matches(name, list(known), n=1)
    return {"name": path + name, "nearest": path + nearest[0] if nearest else ""}


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters under the names that templates use."""
        return {
            "corral_address_error": address_error,
            "corral_argument_errors": argument_errors,
            "corral_is_loopback": is_loopback,
            "corral_is_unspecified": is_unspecified,
            "corral_network_error": network_error,
            "corral_path_error": path_error,
            "corral_unknown_variables": unknown_variables,
            "corral_value_errors": value_errors,
        }

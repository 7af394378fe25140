"""Filters for the rules that the roles' variables follow.  They run on the controller and open no connection."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

# The largest private IPv4 network is 10.0.0.0/8; a site gets at most a /29 to /48 of IPv6.
SHORTEST_PREFIX = {4: 8, 6: 16}

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z)({_LABEL}\.)*(?=[^.]*[A-Za-z]){_LABEL}\Z")


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


def address_error(value: object) -> str:
    """Return why *value* is no IP address, as the end of a sentence that begins with it; "" for an address."""
    try:
        ipaddress.ip_address(str(value))
    except ValueError:
        return "is not an IP address"
    return ""


def is_loopback(value: object) -> bool:
    """Whether *value* is an address that only its own machine reaches; False for what is no address."""
    return not address_error(value) and ipaddress.ip_address(str(value)).is_loopback


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
            "corral_is_loopback": is_loopback,
            "corral_network_error": network_error,
            "corral_unknown_variables": unknown_variables,
        }

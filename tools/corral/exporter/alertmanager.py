"""Reads which of corral's alerts fire, from an Alertmanager, for the records."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from .errors import AlertsUnknown

LIMIT_S = 2.0
"""Seconds for an answer."""
MOST = 50
"""Alerts that are read."""
LABELS = ("card", "store", "model", "holder", "culprit", "reason", "state", "consumer")
"""Of an alert, beside its name."""
_FILTER = quote('alertname=~"Corral.+"', safe="")
_PATH = f"/api/v2/alerts?active=true&inhibited=false&silenced=true&filter={_FILTER}"
_MOST_BYTES = 4 << 20
_CHARACTERS = 100


@dataclass(frozen=True)
class Alert:
    """An alert that fires, and those of its labels that are ``LABELS``."""

    name: str
    labels: dict[str, str]


@dataclass(frozen=True)
class Alertmanager:
    """The Alertmanager at *url* (``http://host:port``)."""

    url: str

    def firing(self) -> tuple[Alert, ...]:
        """Corral's alerts that fire and that no other inhibits, sorted, ``MOST`` at most.

        Raises:
            AlertsUnknown: it did not answer, or not as an Alertmanager does.
        """
        try:
            found = [_alert(one["labels"]) for one in json.loads(self._get())]
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
            raise AlertsUnknown(f"The Alertmanager at {self.url} gave no list of alerts: {error!r}.") from None
        return tuple(sorted(found, key=lambda one: (one.name, sorted(one.labels.items())))[:MOST])

    def _get(self) -> bytes:
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 9093, timeout=LIMIT_S)
        try:
            connection.request("GET", f"{parts.path.rstrip('/')}{_PATH}", headers={"Accept": "application/json"})
            answer = connection.getresponse()
            body = answer.read(_MOST_BYTES + 1)
        finally:
            connection.close()
        if answer.status != 200 or len(body) > _MOST_BYTES:
            raise ValueError(f"HTTP {answer.status}, {len(body)} bytes")
        return body


def _alert(labels: dict[str, str]) -> Alert:
    known = {name: labels[name][:_CHARACTERS] for name in LABELS if name in labels}
    return Alert(labels["alertname"][:_CHARACTERS], known)

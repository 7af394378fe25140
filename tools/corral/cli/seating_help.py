"""What `corral plan`, `apply` and `up` print of the seating: advice always, remedies beneath a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from corral import output
from corral.catalog.catalog import Catalog
from corral.errors import Refused
from corral.lock.lock import Lock
from corral.seating import advice, chart, report


@contextmanager
def seating_help(catalog: Catalog, lock: Lock) -> Iterator[None]:
    """Print the advice about *lock*, which is fresh; when the block is refused, add remedies for each short card.

    Raises:
        Refused: what the block raised, with the remedies beneath its message.
    """
    for one in advice.of(lock, chart.of(lock)):
        output.warn(advice.sentence(one))
    try:
        yield
    except Refused as refusal:
        if not (lines := report.help_for_short_cards(catalog, lock)):
            raise
        raise Refused("\n".join([refusal.message, *lines]), next_step=refusal.next_step) from None

"""What `corral plan`, `apply` and `up` print of the seating: advice always, remedies beneath a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from corral import output
from corral.catalog.catalog import Catalog
from corral.errors import CannotRun, Refused
from corral.lock.lock import Lock
from corral.seating import advice, chart, report

_ELSEWHERE = " For remedies run: corral seat"
"""The end of the seating module's sentence, for a plain `terraform plan`."""


@contextmanager
def seating_help(catalog: Catalog, lock: Lock) -> Iterator[None]:
    """Print the advice about *lock*, which is fresh; when the block fails, add remedies for each short card.

    Raises:
        Refused, CannotRun: what the block raised, with the remedies beneath its message.
    """
    for one in advice.of(lock, chart.of(lock)):
        output.warn(advice.sentence(one))
    try:
        yield
    except (Refused, CannotRun) as error:
        if not (lines := report.help_for_short_cards(catalog, lock)):
            raise
        kind = Refused if isinstance(error, Refused) else CannotRun
        raise kind("\n".join([error.message.replace(_ELSEWHERE, ""), *lines]), next_step=error.next_step) from None

"""Box 6: deep health.  Not a status, a right answer: the checks of `corral smoke`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from corral.gate import box
from corral.gate.box import Line, State
from corral.gate.site import Site
from corral.smoke import questions
from corral.smoke.questions import Subject
from corral.smoke.report import CheckResult
from corral.smoke.runner import Runner


def health(site: Site) -> tuple[Line, ...]:
    """Whether the model answers, and answers right; unknown where no right answer is known.

    Raises:
        CannotRun: no server listens.
    """
    subject, *_ = questions.subjects(site.catalog, [site.model])
    return require_right(answers(site), subject)


def answers(site: Site) -> tuple[Line, ...]:
    """Whether the model answers, and answers right as far as a right answer is known.

    Raises:
        CannotRun: no server listens.
    """
    return judge(asyncio.run(_checks(site)), site.why)


def require_right(found: tuple[Line, ...], subject: Subject) -> tuple[Line, ...]:
    """*found*, or unknown where any text passes as the answer of *subject*: the colours of images are always known."""
    if subject.sees or subject.expect is not None or box.worst(found) is not State.PASSED:
        return found
    text = f"{found[0].text}; any text passes as its answer, so whether it answers right is unknown"
    step = f"Add `smoke: {{prompt: …, expect: …}}` to the file of {subject.model} (docs/models.md), then: corral lock"
    return box.line(State.UNKNOWN, text, step)


async def _checks(site: Site) -> Sequence[CheckResult]:
    async with site.api() as api:
        runner = Runner(api, site.timeout_s, silence_s=site.silence_s, report=site.report, logs=site.logs)
        subjects = questions.subjects(site.catalog, [site.model])
        return (await runner.run(subjects, list(site.catalog.models))).checks


def judge(found: Sequence[CheckResult], step: str) -> tuple[Line, ...]:
    """The box by the checks: all of them passed, or the reason of each that did not."""
    wrong = [f"{one.check} {one.status}: {one.reason}" for one in found if one.status != "passed"]
    if wrong or not found:
        return box.line(State.FAILED, "; ".join(wrong) or "nothing was checked", step)
    names = ", ".join(f"{one.check} {one.seconds:.2f} s" for one in found)
    return box.line(State.PASSED, f"{len(found)} checks passed: {names}")

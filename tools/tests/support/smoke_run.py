"""Smoke runs against the stub endpoint, and what they found."""

from __future__ import annotations

import asyncio

from corral.smoke import runner
from corral.smoke.endpoint import Endpoint
from corral.smoke.questions import Subject
from tests.support.stub_endpoint import serve

TEXT = Subject("text", thinks=False, expect="OK")
EYES = Subject("eyes", sees=True)


class Heard:
    """What the runner told while it ran."""

    def __init__(self):
        self.loads, self.results = [], []

    def loading(self, model):
        self.loads.append(model)

    def checked(self, result):
        self.results.append(result)


def smoke(stub, *subjects, limit_s=10.0, heard=None, **options):
    async def go():
        async with Endpoint(stub.root, api_key=options.pop("api_key", "")) as api:
            return await runner.run(
                api, subjects, stub.models, watcher=heard or Heard(), limit_s=limit_s, **{"is_local": True, **options}
            )

    return asyncio.run(go())


def outcome(report, model, check):
    (found,) = [line for line in report.checks if (line.model, line.check) == (model, check)]
    return found.status, found.reason


def reason_of(act, check="answer", subject=TEXT, **options):
    """Why *check* failed, when *act* is all that the model does."""
    with serve(subject.model, acts={(subject.model, "*"): act}) as stub:
        report = smoke(stub, subject, **options)
    status, reason = outcome(report, subject.model, check)
    assert status == "failed"
    assert not report.passed
    return reason

"""Smoke runs against the stub endpoint, and what they found."""

from __future__ import annotations

import asyncio

from corral.smoke.endpoint import Endpoint
from corral.smoke.questions import Subject
from corral.smoke.runner import Runner
from tests.support.stub_endpoint import serve

TEXT = Subject("text", thinks=False, expect="OK")
EYES = Subject("eyes", sees=True)


def smoke(stub, *subjects, limit_s=10.0, api_key="", **options):
    async def go():
        async with Endpoint(stub.root, api_key=api_key) as api:
            return await Runner(api, limit_s, **{"is_local": True, **options}).run(subjects, stub.models)

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

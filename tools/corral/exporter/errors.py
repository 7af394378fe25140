"""Why an answer is unknown: the driver's, llama-swap's."""

from __future__ import annotations

from enum import StrEnum


class DriverFault(StrEnum):
    """What is wrong with nvidia-smi: one code each, for metrics and for programs."""

    MISSING = "missing"
    """There is no such program."""
    NOT_STARTED = "not_started"
    """The program exists and does not start."""
    HANGING = "hanging"
    """It did not answer in time."""
    FAILED = "failed"
    """It ended with another exit code than 0."""
    UNREADABLE = "unreadable"
    """It printed something else than the table that it was asked for."""


class DriverUnknown(Exception):
    """What is on the cards is unknown; ``fault`` is the code, the message a sentence that quotes nvidia-smi."""

    def __init__(self, fault: DriverFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class LlamaSwapUnknown(Exception):
    """What llama-swap or one of its engines does is unknown; the message is a sentence."""


class AlertsUnknown(Exception):
    """Which alerts fire is unknown; the message is a sentence."""


class PodsUnknown(Exception):
    """Which pods the node has is unknown; the message is a sentence."""


class KeysUnknown(Exception):
    """Which keys are the operator's is unknown; the message is a sentence."""


class Misconfigured(Exception):
    """The exporter cannot start with its configuration; the message names the rule."""

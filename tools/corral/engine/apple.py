"""Which models an Apple chip computes on its CPU: those whose projector needs Metal kernels that the chip lacks.

The same rule, for all models of a machine, is in ``ansible/roles/llama_server/vars/main.yml``; a test compares them.
"""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Mapping

FIRST_WITH_BF16 = 5
"""The first generation (M5) for which ggml's Metal backend has bf16 kernels."""
UNKNOWN = "an unknown processor"

_SYSCTL = "/usr/sbin/sysctl"
_LIMIT_S = 10.0
_CHIP = re.compile(r"Apple M(\d{1,3})")


def processor() -> str:
    """The processor of this machine if it runs macOS, as it names itself: ``Apple M2 Pro``; empty elsewhere."""
    if platform.system() != "Darwin":
        return ""
    command = [_SYSCTL, "-n", "machdep.cpu.brand_string"]
    try:
        found = subprocess.run(command, capture_output=True, timeout=_LIMIT_S, check=True, text=True, errors="replace")
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return re.sub(r"[^\w .()@-]", "", found.stdout, flags=re.ASCII).strip()[:80] or UNKNOWN


def on_cpu(processor: str, projectors: Mapping[str, str | None]) -> dict[str, str]:
    """The models of which no layer is to be on the card, each with the reason.

    Args:
        processor: as ``processor()`` has it.
        projectors: the number format of each model's projector (``BF16``), by the model's id; None: it has none.
    """
    if not processor:
        return {}
    found = _CHIP.match(processor)
    if found and int(found[1]) >= FIRST_WITH_BF16:
        return {}
    why = f"{found[0]}: before M{FIRST_WITH_BF16} bf16 Metal kernels are missing" if found else ""
    reason = f"{why or f'{processor} is not a known Apple chip'}, and its projector is BF16"
    return {model: reason for model, kind in projectors.items() if kind == "BF16"}

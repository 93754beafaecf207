"""How much slower this machine is than the one for which the tests' time limits were chosen.

`python -m tests.run` measures it once, before the tests, and passes it on in a variable. Limits of time in tests are
upper bounds of waits: a slow machine gets more time, a quick one no less.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from typing import Final

__all__ = ["FACTOR_MAX", "SLOWNESS", "VARIABLE", "measured", "scaled"]

VARIABLE: Final = "TARN_TEST_SLOWNESS"
FACTOR_MAX: Final = 6.0
_REFERENCE_SECONDS: Final = 0.6
"""The measured work on the machine of reference: two cores of 2024, idle."""
_ROUNDS: Final = 3


def measured() -> float:
    """Returns the factor, 1 to `FACTOR_MAX`: of the processor, and of starting a process."""
    times = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        text = b"x" * 1024
        for _ in range(100_000):
            text = hashlib.sha256(text).digest() * 32
        subprocess.run([sys.executable, "-c", "import asyncio, json, ssl"], check=True)
        times.append(time.perf_counter() - start)
    return min(FACTOR_MAX, max(1.0, sorted(times)[_ROUNDS // 2] / _REFERENCE_SECONDS))


SLOWNESS: Final = min(FACTOR_MAX, max(1.0, float(os.environ.get(VARIABLE, "1"))))


def scaled(seconds: float) -> float:
    """Returns a limit of time for this machine."""
    return seconds * SLOWNESS

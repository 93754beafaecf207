"""The number of inputs for each target, and their seed."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

__all__ = ["Budget"]


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of each target.

    Attributes:
        seed: decides the inputs.
        seconds: duration; None for the target's fixed number of inputs, so that every machine, slow or fast,
            tries the same ones.
    """

    seed: int
    seconds: float | None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "fuzz: feeds a parser bytes, FUZZ_SECONDS long or a fixed number of inputs"
    )


@pytest.fixture(scope="session")
def budget() -> Budget:
    seconds = os.environ.get("FUZZ_SECONDS")
    return Budget(int(os.environ.get("FUZZ_SEED", "1")), float(seconds) if seconds else None)

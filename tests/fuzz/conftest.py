"""How long and from which seed the targets are fuzzed."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

__all__ = ["Budget"]


@dataclass(frozen=True, slots=True)
class Budget:
    """Of each target; the same under CI each time, so that a failure comes back the same."""

    seconds: float
    seed: int


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fuzz: feeds a parser bytes for FUZZ_SECONDS (60)")


@pytest.fixture(scope="session")
def budget() -> Budget:
    return Budget(
        float(os.environ.get("FUZZ_SECONDS", "60")), int(os.environ.get("FUZZ_SEED", "1"))
    )

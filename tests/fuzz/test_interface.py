"""The REST endpoint answers as its interface says; `make fuzz TARGET=interface` tries more."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fuzz.conftest import Budget

EXAMPLES = 2
"""Of each kind, for each operation."""


@pytest.mark.timeout(120)
def test_every_answer_is_one_that_the_interface_declares(tmp_path: Path, budget: Budget) -> None:
    from tests.fuzz.interface import (
        served,
        try_operations,
    )  # schemathesis: a second, in each worker

    with served(tmp_path) as at:
        assert try_operations(at, number=budget.seed, examples=EXAMPLES) > 100

"""Options of long runs: `make state-machine STEPS=20000`."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--steps", type=int, default=0, help="operations of the state machine on each store"
    )

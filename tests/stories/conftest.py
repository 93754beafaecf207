"""The flag that writes what happens into the stories."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write what happens into the files of tests/stories"
    )

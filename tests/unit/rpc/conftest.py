"""Fixtures of all tests of rpcs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from tests.support.servers.toy_service import close_what_is_left


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def _closes_what_is_left() -> AsyncIterator[None]:
    """A failed test leaves no server and no client of the toy service to the tests after it."""
    yield
    await close_what_is_left()

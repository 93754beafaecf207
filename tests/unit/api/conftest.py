"""Fixtures: the REST endpoint over real services, and its administrator in a browser without scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rest_service import Rest, running_rest
from web_pages import WebUser


@pytest.fixture
async def rest(tmp_path: Path) -> AsyncIterator[Rest]:
    async with running_rest(tmp_path) as running:
        yield running


@pytest.fixture
async def user(rest: Rest) -> WebUser:
    person = WebUser(rest)
    assert (await person.sign_in()).status == 303
    return person

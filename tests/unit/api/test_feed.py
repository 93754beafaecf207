"""The events of a branch as a stream, on real services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from event_streams import watching
from rest_service import Rest, running_rest

LAKE = "/repositories/lake"


@pytest.fixture
async def rest(tmp_path: Path) -> AsyncIterator[Rest]:
    async with running_rest(tmp_path) as running:
        yield running


async def commit(rest: Rest, message: str, branch: str = "main") -> str:
    answer = await rest.ask("POST", f"{LAKE}/branches/{branch}/commits", {"message": message})
    assert answer.status == 201, answer.body
    found: str = answer.json["id"]
    return found


async def put(rest: Rest, path: str, size: int = 1, branch: str = "main") -> None:
    await rest.service.stage(path, rest.service.entry(size), branch)


async def test_everything_that_happens_is_told_in_order_and_once(rest: Rest) -> None:
    async with watching(rest) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-store"
        for number in range(3):
            await put(rest, f"events/{number}")
        await put(rest, "top")
        [written] = await stream.until(1)
        assert written["kind"] == "changes"
        assert written["folders"] == [
            {"path": "events/", "writes": 3, "deletes": 0, "undone": 0},
            {"path": "top", "writes": 1, "deletes": 0, "undone": 0},
        ]
        first = await commit(rest, "the first")
        committed = (await stream.until(2))[-1]
        assert (committed["kind"], committed["user"]) == ("commit", "root")
        assert (committed["commit_id"], committed["message"]) == (first, "the first")
        assert committed["folders"][0]["writes"] == 3
        answer = await rest.ask("DELETE", f"{LAKE}/branches/main/objects?path=events/0")
        assert answer.status == 204
        deleted = (await stream.until(3))[-1]
        assert deleted["folders"] == [{"path": "events/", "writes": 0, "deletes": 1, "undone": 0}]
        answer = await rest.ask("PUT", f"{LAKE}/branches/main", {"type": "reset"})
        assert answer.status == 204
        undone = (await stream.until(4))[-1]
        assert undone["folders"] == [{"path": "events/", "writes": 0, "deletes": 0, "undone": 1}]
        for _ in range(20):
            await stream.later(1)
        assert stream.kinds == ["changes", "commit", "changes", "changes"]
        assert len({each["id"] for each in stream.events}) == 4

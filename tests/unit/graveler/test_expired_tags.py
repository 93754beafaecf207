"""Tags that a retention rule deletes, beside people who create, delete and use them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from expired_lake import commit, expire, listing_of, roots
from lake import Lake
from tests.support.faults.gates import GatedKv

from tarn.core.errors import TarnError
from tarn.core.ids import BranchId, TagId
from tarn.kv.records import Tag

V1 = TagId("v1")
RULE = "tags *: keep_days 30"


async def names(lake: Lake) -> list[str]:
    """The names of all refs."""
    found = []
    for ref in ("main", "v1", "other"):
        try:
            await lake.graveler.refs.resolve(lake.repository, ref)
        except TarnError:
            continue
        found.append(ref)
    return found


async def tagged(lake: Lake, size: int = 1) -> Tag:
    return await lake.graveler.tags.create(lake.repository, V1, await commit(lake, "a", size))


async def let_go(lake: Lake, tag: Tag) -> bool:
    return await lake.graveler.tags.expire(lake.repository, V1, tag.nonce, RULE)


async def test_the_tag_goes_and_its_commit_and_its_name_stay(lake: Lake) -> None:
    tag = await tagged(lake)
    assert await let_go(lake, tag)
    assert await names(lake) == ["main"]
    assert await lake.get("a", tag.commit_id) == 1
    assert not await let_go(lake, tag), "a repeated call finds nothing"
    await lake.graveler.branches.create(lake.branch(BranchId(V1)), tag.commit_id)
    assert not await let_go(lake, tag)
    assert await names(lake) == ["main", "v1"], "the name is free, also for a branch"


async def test_another_life_of_the_tag_stays(lake: Lake, other: Lake) -> None:
    tag = await tagged(lake)
    await other.graveler.tags.delete(lake.repository, V1)
    again = await other.graveler.tags.create(lake.repository, V1, tag.commit_id)
    assert not await let_go(lake, tag)
    assert (await other.graveler.tags.get(lake.repository, V1)).nonce == again.nonce


async def test_a_tag_that_is_made_again_at_any_moment_stays(
    lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person deletes the tag and creates it anew before each request of the collection that deletes it."""
    outcomes = set()
    for number in range(20):
        tag = await tagged(lake, number)
        before = Before(number, partial(again, other, tag))
        with monkeypatch.context() as patch:
            patch.setattr(GatedKv, "_run", before.run)
            outcomes.add(await let_go(lake, tag))
        if before.left >= 0:
            break
        assert (await lake.graveler.tags.get(lake.repository, V1)).nonce != tag.nonce
        await lake.graveler.tags.delete(lake.repository, V1)
    assert outcomes == {True, False}
    assert number > 2


async def again(lake: Lake, tag: Tag) -> None:
    """Creates the tag anew, whether or not it is there."""
    with suppress(TarnError):
        await lake.graveler.tags.delete(lake.repository, V1)
    await lake.graveler.tags.create(lake.repository, V1, tag.commit_id)


async def test_what_is_made_from_a_tag_that_goes_keeps_its_objects(
    lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tag goes, and then its commit expires by the next plan, before each request of a creation of a branch."""
    outcomes = set()
    for number in range(40):
        tag = await tagged(lake, number)
        await commit(lake, "b", number + 2)
        await lake.kv.drop_partition(lake.graveler.repositories.keys_of(lake.repository).reflog)

        async def collect(tag: Tag = tag) -> None:
            assert await let_go(other, tag)
            await expire(other, tag.commit_id)

        before = Before(number, collect)
        with monkeypatch.context() as patch:
            patch.setattr(GatedKv, "_run", before.run)
            try:
                source = await lake.graveler.refs.commit_of(lake.repository, "v1")
                await lake.graveler.branches.create(lake.branch(BranchId("other")), source)
            except TarnError as error:
                assert before.left < 0
                outcomes.add(error.reason.name)
                assert await names(lake) == ["main"]
                continue
        if before.left >= 0:
            break
        outcomes.add("made")
        assert await listing_of(lake, tag.commit_id) in (await roots(lake))[0]

        async def keep(_: object) -> None:
            """Announces no tokens."""

        await lake.graveler.branches.delete(lake.branch(BranchId("other")), keep)
    assert outcomes == {"REF_NOT_FOUND", "EXPIRED_COMMIT", "made"}


class Before:
    """Does something before one request of an operation to the KV.

    Attributes:
        left: requests before that; negative: it was done.
    """

    def __init__(self, at: int, work: Callable[[], Awaitable[object]]) -> None:
        self.left = at
        self._work = work
        self._is_inside = False
        self._original = GatedKv._run

    @property
    def run(self) -> Callable[..., Awaitable[Any]]:
        async def run(kv: GatedKv, *arguments: Any) -> Any:
            if not self._is_inside:
                self.left -= 1
                if self.left == -1:
                    self._is_inside = True
                    await self._work()
                    self._is_inside = False
            return await self._original(kv, *arguments)

        return run

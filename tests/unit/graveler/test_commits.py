"""Commit records: found by id and prefix, and used only if they hash to their id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from lake import Lake

from tarn.core.branch import seal
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Group, Partition, Predicate
from tarn_graveler.branch.handle import BranchHandle, claims_nothing

MISSING = CommitId("0" * 64)


def rows_of(lake: Lake) -> Partition:
    return lake.graveler.repositories.keys_of(lake.repository).commits


async def ids_of(lake: Lake) -> list[str]:
    rows = await lake.kv.scan(rows_of(lake), b"", None, 1000)
    return [key.decode().rpartition("/")[2] for key, _ in rows]


async def test_a_record_that_hashes_to_another_id_is_damaged(lake: Lake, other: Lake) -> None:
    await lake.put("a", 1)
    first = await lake.commit()
    await lake.put("a", 2)
    second = await lake.commit()
    key = RepositoryKeys.commit(first.commit_id)
    (found,) = await lake.kv.get_many(rows_of(lake), [RepositoryKeys.commit(second.commit_id)])
    assert found is not None
    assert await lake.kv.set_many(rows_of(lake), [Group(key, ((key, found.value),))]) == [None]
    assert (await lake.graveler.commits.get(lake.repository, first.commit_id)) == first.commit
    with pytest.raises(TarnError) as raised:
        await other.graveler.commits.get(lake.repository, first.commit_id)
    assert raised.value.kind is Kind.CORRUPT


async def test_a_commit_that_is_not_there_is_not_found(lake: Lake) -> None:
    with pytest.raises(TarnError) as raised:
        await lake.graveler.commits.get(lake.repository, MISSING)
    assert raised.value.reason is Reason.COMMIT_NOT_FOUND
    assert raised.value.kind is Kind.NOT_FOUND


async def test_a_prefix_names_one_commit_or_none_or_is_ambiguous(lake: Lake) -> None:
    while True:
        await lake.commit(allow_empty=True)
        ids = await ids_of(lake)
        if len({each[0] for each in ids}) < len(ids):
            break
    shared = next(each[0] for each in ids if sum(other[0] == each[0] for other in ids) > 1)
    by_prefix = lake.graveler.commits.by_prefix
    with pytest.raises(TarnError) as raised:
        await by_prefix(lake.repository, shared)
    assert (raised.value.kind, raised.value.reason) == (Kind.INVALID, Reason.REF_AMBIGUOUS)
    for each in ids:
        assert await by_prefix(lake.repository, each) == each
        assert await by_prefix(lake.repository, each[:60]) == each
    assert await by_prefix(lake.repository, MISSING[:40]) is None


async def test_a_commit_whose_row_is_refused_is_not_made(
    lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No branch may name a commit that is not stored."""
    await lake.put("a", 1)
    before = await ids_of(lake)
    write = lake.kv.set_many

    async def set_many(partition: Partition, groups: Sequence[Group]) -> list[TarnError | None]:
        if partition.name == rows_of(lake).name:
            return [TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "away") for _ in groups]
        return await write(partition, groups)

    monkeypatch.setattr(lake.kv, "set_many", set_many)
    with pytest.raises(TarnError) as raised:
        await lake.commit()
    assert raised.value.kind is Kind.UNAVAILABLE
    head = (await other.graveler.branches.fresh(lake.main)).branch.commit_id
    assert [head] == before


async def test_a_commit_that_never_gets_its_turn_says_that_it_was_not_made(
    lake: Lake,
    other: Lake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await lake.put("a", 1)
    before = await ids_of(lake)
    set_if, seals = lake.kv.set_if, 0

    async def meet_a_seal(
        partition: Partition, key: bytes, value: bytes, predicate: Predicate | None
    ) -> Predicate:
        nonlocal seals
        mine = key == lake.branch_key and asyncio.current_task() is committing
        if mine and (seals := seals + 1) > 1:
            branches = other.graveler.branches
            sealing = BranchHandle(branches, lake.main).change(
                lambda now, op_id: seal(now, branches.new_token(), op_id), claims_nothing
            )
            await asyncio.get_running_loop().create_task(sealing)
        return await set_if(partition, key, value, predicate)

    monkeypatch.setattr(lake.kv, "set_if", meet_a_seal)
    committing = asyncio.get_running_loop().create_task(lake.commit())
    with pytest.raises(TarnError) as raised:
        await committing
    assert (raised.value.kind, raised.value.reason) == (Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES)
    assert (await other.graveler.branches.fresh(lake.main)).branch.commit_id in before
    assert await lake.get("a") == 1


@pytest.mark.parametrize("applied", [True, False])
async def test_a_commit_whose_row_is_in_doubt_is_surely_not_made(lake: Lake, applied: bool) -> None:
    """Its row is the same whenever it lands, and no branch names it, so a repetition loses nothing."""
    await lake.put("x", 1)
    before = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    lake.kv.lose("set_many", applied=applied)
    with pytest.raises(TarnError) as raised:
        await lake.commit()
    assert raised.value.kind is Kind.UNAVAILABLE
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    assert head == before
    made = await lake.commit()
    assert made.commit.parents == (before,)
    assert await lake.get("x", "main@") == 1

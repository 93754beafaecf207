"""A branch handle stays with one incarnation, whichever step meets the next one.

The commit and the conditional write are those of production; a gate holds one request of theirs while the
branch is deleted and created again. The new incarnation has to look as if they had never run.
"""

from collections.abc import Awaitable, Callable

import pytest
from lake import Lake, Running, entry, keep_tokens, reached

from tarn.core.branch import Branch, TokenKind
from tarn.core.condition import WriteCondition
from tarn.core.errors import Reason, TarnError
from tarn_graveler.branch.handle import BranchHandle


async def record(lake: Lake) -> Branch:
    return (await lake.graveler.branches.fresh(lake.main)).branch


async def recreate(lake: Lake) -> Branch:
    """Gives the name to another incarnation; returns its record."""
    commit_id = (await record(lake)).commit_id
    await lake.graveler.branches.delete(lake.main, keep_tokens)
    return await lake.graveler.branches.create(lake.main, commit_id)


async def assert_not_found(work: Awaitable[object]) -> None:
    with pytest.raises(TarnError) as caught:
        await work
    assert caught.value.reason is Reason.BRANCH_NOT_FOUND


@pytest.mark.parametrize("held", ["scan", "set_if"], ids=["before the seal", "during the seal"])
async def test_a_commit_does_not_seal_the_next_incarnation(
    lake: Lake, running: Running, held: str
) -> None:
    if held == "set_if":
        await lake.put("x", 1)
    gate = lake.kv.hold(held)
    commit = running.start(lake.commit())
    await reached(gate)
    new = await recreate(lake)
    await lake.put("y", 2)
    gate.open()
    await assert_not_found(commit)
    assert await record(lake) == new
    assert await lake.get("y") == 2


async def test_a_conditional_write_does_not_seal_the_next_incarnation(
    lake: Lake, running: Running
) -> None:
    gate = lake.kv.hold("set_if", lake.branch_key)
    conditional = lake.graveler.conditional
    only_new = WriteCondition(if_none_match=True)
    write = running.start(conditional.stage(lake.main, "x", entry(1, "op"), only_new))
    await reached(gate)
    new = await recreate(lake)
    gate.open()
    await assert_not_found(write)
    assert await record(lake) == new


@pytest.mark.parametrize(
    "step",
    [
        lambda handle: handle.version(),
        lambda handle: handle.fresh(written=False),
        lambda handle: handle.seal(),
        lambda handle: handle.seal_unless(lambda _: True, TokenKind.PLAIN, written=False),
    ],
    ids=["version", "fresh", "seal", "seal_unless"],
)
async def test_every_step_after_the_first_meets_the_same_incarnation_or_none(
    lake: Lake, step: Callable[[BranchHandle], Awaitable[object]]
) -> None:
    handle = BranchHandle(lake.graveler.branches, lake.main)
    first = await handle.version()
    assert await handle.fresh(written=False) == first.branch
    new = await recreate(lake)
    await assert_not_found(step(handle))
    assert await record(lake) == new


async def test_a_cached_record_does_not_choose_the_incarnation(lake: Lake, other: Lake) -> None:
    """It may be one of an incarnation that is gone, and the operation has not depended on it yet."""
    handle = BranchHandle(other.graveler.branches, lake.main)
    old = (await other.graveler.branches.fresh(lake.main)).branch
    new = await recreate(lake)
    assert handle.cached() == old
    assert await handle.fresh(written=False) == new

"""The cache of branch records in a process."""

from __future__ import annotations

import pytest
from lake import Lake, keep_tokens

from tarn.core.branch import Branch, seal
from tarn.core.errors import Reason, TarnError
from tarn_graveler.branch.handle import BranchHandle, claims_nothing


async def sealed(lake: Lake) -> Branch:
    """Seals the branch; returns its new record."""
    branches = lake.graveler.branches
    token = branches.new_token()
    done = await BranchHandle(branches, lake.main).change(
        lambda b, op: seal(b, token, op), claims_nothing
    )
    return done.written


def cached(lake: Lake) -> Branch | None:
    return lake.graveler.branches.cached(lake.main)


async def fresh(lake: Lake) -> Branch:
    return (await lake.graveler.branches.fresh(lake.main)).branch


async def test_a_record_is_known_for_two_seconds_from_the_last_read_of_it(lake: Lake) -> None:
    await fresh(lake)
    lake.clock.advance(1.5)
    again = await fresh(lake)
    lake.clock.advance(1.5)
    assert cached(lake) == again
    lake.clock.advance(0.5)
    assert cached(lake) is None


async def test_bytes_that_are_known_are_not_decoded_again(lake: Lake, other: Lake) -> None:
    first = await fresh(lake)
    assert await fresh(lake) is first
    changed = await sealed(other)
    assert cached(lake) is first
    assert await fresh(lake) == changed != first
    assert cached(lake) == changed


async def test_what_this_process_changed_is_known_as_it_is_stored(lake: Lake) -> None:
    changed = await sealed(lake)
    assert cached(lake) is changed
    assert await fresh(lake) is changed


@pytest.mark.parametrize("ended", ["by us", "by another", "with its repository"])
async def test_a_branch_that_is_gone_is_not_known(lake: Lake, other: Lake, ended: str) -> None:
    await fresh(lake)
    if ended == "with its repository":
        await other.graveler.branches.mark_deleted(lake.main)
    else:
        by = lake if ended == "by us" else other
        await by.graveler.branches.delete(lake.main, keep_tokens)
    assert (cached(lake) is None) == (ended == "by us")
    with pytest.raises(TarnError) as caught:
        await fresh(lake)
    assert caught.value.reason is Reason.BRANCH_NOT_FOUND
    assert cached(lake) is None

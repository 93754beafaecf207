"""A branch that is restored, or made again, remembers the moves of its former life (rule 9).

A conditional write does not count its own row outside the staging token once the head was moved: the row may have
landed over what the move brought.
"""

from __future__ import annotations

import pytest
from lake import Lake, Running, entry, keep_tokens, reached

from tarn.core.condition import WriteCondition
from tarn.core.errors import TarnError
from tarn.core.ids import BranchId
from tarn.kv.port import OutcomeUnknownError
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.records.branches import BranchName
from tarn_graveler.versioning.merges import MergeRequest

NEW = WriteCondition(if_none_match=True)
DEV = BranchId("dev")


async def make_again(lake: Lake, dev: BranchName, how: str) -> None:
    """Deletes a branch and makes one of its name and head."""
    branches, reflog = lake.graveler.branches, lake.graveler.reflog
    gone = await branches.delete(dev, keep_tokens)
    deletion = await reflog.deletion(lake.repository, dev.branch_id)
    assert deletion is not None
    if how == "restored":
        await branches.create(dev, gone.commit_id, undone=deletion)
    else:
        await branches.create(dev, gone.commit_id)


@pytest.mark.parametrize("how", ["restored", "created"])
@pytest.mark.parametrize("seconds", [0, 5])
async def test_a_late_row_of_a_former_life_is_not_counted(
    lake: Lake, running: Running, how: str, seconds: int
) -> None:
    graveler, dev, feature = lake.graveler, lake.branch(DEV), lake.branch(BranchId("feature"))
    await lake.put("x", 1)
    base = (await lake.commit()).commit_id
    await graveler.branches.create(dev, base)
    await graveler.branches.create(feature, base)
    # Another client creates p on the feature branch, and is answered.
    await graveler.conditional.stage(feature, "p", entry(7, "theirs"), NEW)
    source = (await graveler.committing.commit(feature, CommitRequest("bob", "p"))).commit_id
    # Ours verifies on dev that p is absent, and pauses before its row.
    row = lake.kv.hold("set_if", lake.row_key("p"))
    ours = running.start(graveler.conditional.stage(dev, "p", entry(1, "ours"), NEW))
    await reached(row)
    await graveler.merges.merge(dev, MergeRequest(source, "ann", "brings p"))
    assert await lake.get("p", "dev") == 7
    row.open()
    with pytest.raises(OutcomeUnknownError):  # 503: the client repeats
        await ours
    await graveler.committing.commit(dev, CommitRequest("ann", "takes our late row"))
    lake.clock.advance(seconds)
    await make_again(lake, dev, how)
    with pytest.raises(OutcomeUnknownError):  # the repetition has the same operation id
        await graveler.conditional.stage(dev, "p", entry(1, "ours"), NEW)


@pytest.mark.parametrize("how", ["restored", "created"])
async def test_the_times_of_moves_increase_over_all_lives(lake: Lake, how: str) -> None:
    """Also while the clock stands still."""
    dev, branches = lake.branch(DEV), lake.graveler.branches
    created = await branches.create(dev, (await branches.fresh(lake.main)).branch.commit_id)
    assert created.move_time_us >= created.create_time_us == lake.clock.now_us()
    times = [created.move_time_us]
    for _ in range(3):
        for _ in range(4):
            await lake.graveler.moves.reset(dev)
            times.append((await branches.fresh(dev)).branch.move_time_us)
        await make_again(lake, dev, how)
        times.append((await branches.fresh(dev)).branch.move_time_us)
    assert times == sorted(set(times))


async def test_a_new_branch_counts_its_own_rows(lake: Lake, running: Running) -> None:
    """Its creation is no move that a write of its own life could have missed."""
    dev = lake.branch(DEV)
    await lake.graveler.branches.create(
        dev, (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    )
    row = lake.kv.hold("set_if", lake.row_key("p"), after=True)
    write = running.start(lake.graveler.conditional.stage(dev, "p", entry(1, "ours"), NEW))
    await reached(row)
    await lake.graveler.committing.commit(dev, CommitRequest("ann", "takes the row"))
    row.open()
    await write
    assert await lake.get("p", "dev") == 1
    with pytest.raises(TarnError):
        await lake.graveler.conditional.stage(dev, "p", entry(2, "another"), NEW)

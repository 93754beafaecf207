"""A lost answer is settled by a read, which may find a later record than the change wrote (rule 8).

No caller goes on with a record that lacks what the caller has decided.
"""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from expired_lake import commit, expire, listing_of, roots
from graveler_service import running_service
from lake import MAIN, Lake, Running, entry, reached
from lake_links import BODY, PATH, Bucket, issue, link, written
from lake_upload import Upload
from settled_later import lose_and_hold

from tarn.core.branch import Branch, TokenKind
from tarn.core.branch_expiry import expiry_in
from tarn.core.clock import DAY_US
from tarn.core.condition import WriteCondition
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId
from tarn.core.listing.spans import PathSpan
from tarn.kv.port import OutcomeUnknownError
from tarn_graveler.branch.default_branch import DefaultBranch
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.compaction.compacted_listings import CompactedListing, CompactedListings
from tarn_graveler.compaction.compacting import CompactionOutcome

NEW = WriteCondition(if_none_match=True)


async def record(lake: Lake) -> Branch:
    return (await lake.graveler.branches.fresh(lake.main)).branch


async def line(lake: Lake) -> list[CommitId]:
    """Makes three commits of `main` whose reflog has expired, so that nothing but their rows keeps the first two."""
    found = [await commit(lake, "a", 1), await commit(lake, "b", 2), await commit(lake, "c", 3)]
    await lake.kv.drop_partition(lake.graveler.repositories.keys_of(lake.repository).reflog)
    return found


async def forced_move(lake: Lake, to: CommitId, head: CommitId) -> Branch:
    new = NewHead(to, await lake.graveler.commits.get(lake.repository, to))
    return await lake.graveler.moves.move_to(lake.main, new, head, force=True)


# ---- pins: rules 13 and 14


async def test_a_forced_move_is_published_only_under_its_pin(
    lake: Lake, other: Lake, running: Running
) -> None:
    """A compaction clears all pins and leaves the head."""
    first, _, head = await line(lake)
    await lake.put("uncommitted", 9)
    move, settling = await lose_and_hold(lake, running, forced_move(lake, first, head))
    await other.graveler.compacting.compact(other.main)
    assert (await record(other)).pins == ()
    pinned = lake.kv.hold("set_if", lake.branch_key, after=True)
    settling.open()
    await reached(pinned)
    listing = await listing_of(other, first)
    assert [pin.metarange_id for pin in (await record(other)).pins] == [listing]
    publish = lake.kv.hold("set_if", lake.branch_key)
    pinned.open()
    await reached(publish)
    # The move has looked for expired rows; now its process pauses for days.
    await expire(other, first)
    mark, _ = await roots(other)
    assert listing in mark
    publish.open()
    assert (await move).commit_id == first


async def test_a_forced_move_that_may_still_land_is_not_told_as_undone(
    lake: Lake, other: Lake, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its pin, the move would give up on the very record that its pending attempt expects."""
    first, _, head = await line(lake)
    await lake.put("uncommitted", 9)
    move, settling = await lose_and_hold(lake, running, forced_move(lake, first, head))
    await other.graveler.compacting.compact(other.main)
    pinned = lake.kv.hold("set_if", lake.branch_key, after=True)
    settling.open()
    await reached(pinned)
    late = lake.kv.delay(lake.branch_key)  # the publish waits at a coordinator
    announce, calls = lake.graveler.drops.announce, 0

    async def refuse_second(*args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the drop list is away")
        await announce(*args)

    monkeypatch.setattr(lake.graveler.drops, "announce", refuse_second)
    pinned.open()
    with pytest.raises(OutcomeUnknownError):
        await move
    await late.land()
    assert (await record(other)).commit_id == first


async def test_nothing_is_published_on_a_record_for_which_it_is_not_right(lake: Lake) -> None:
    handle = BranchHandle(lake.graveler.branches, lake.main)
    version = await handle.version()

    def decide(_now: Branch, _op_id: bytes) -> Branch:
        raise AssertionError("nothing is to be decided")

    async def announce(*_: object) -> None:
        raise AssertionError("nothing is removed")

    outcome = await handle.publish(version, decide, still_holds=lambda _: False, announce=announce)
    assert outcome is version


@pytest.mark.parametrize("work", ["part reset", "compaction"])
async def test_a_compacted_listing_has_its_pin_when_it_is_judged(
    lake: Lake, other: Lake, running: Running, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    build, pinned = CompactedListings.build, []

    async def noted(*args: Any) -> CompactedListing:
        listing = await build(*args)
        pinned.append(listing.pin in listing.record.branch.pins)
        return listing

    monkeypatch.setattr(CompactedListings, "build", noted)
    await lake.put("part/a", 1)
    await lake.put("b", 2)
    sealed = lake.kv.hold("set_if", lake.branch_key, after=True)
    started: Coroutine[Any, Any, object]
    if work == "compaction":
        started = lake.graveler.compacting.compact(lake.main)
    else:
        started = lake.graveler.part_resets.reset(lake.main, PathSpan.of_prefix("part/"))
    task = running.start(started)
    await reached(sealed)
    pin = lake.kv.hold("set_if", lake.branch_key)
    sealed.open()
    await reached(pin)
    lake.kv.lose("set_if", lake.branch_key, applied=True)
    settling = lake.kv.hold("get_many", lake.branch_key)
    pin.open()
    await reached(settling)
    await other.graveler.moves.reset(other.main)  # removes all pins
    await other.put("b", 3)
    settling.open()
    await task
    assert pinned == [True]
    assert (await other.get("b"), await other.get("part/a")) == (3, None)


# ---- seals: rules 3, 4 and 9


async def stage_new(lake: Lake) -> None:
    await lake.graveler.conditional.stage(lake.main, "k", entry(1, "op"), NEW)


async def test_a_valid_conditional_write_is_not_refused_because_of_a_commit_beside_it(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("w", 1)
    write, settling = await lose_and_hold(lake, running, stage_new(lake))
    await other.commit()  # seals again, and leaves a plain token
    assert (await record(other)).staging.kind is TokenKind.PLAIN
    settling.open()
    await write
    assert await other.get("k") == 1


async def test_a_conditional_completion_is_not_refused_because_of_a_commit_beside_it(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    completion, settling = await lose_and_hold(lake, running, upload.finish(condition=NEW))
    await other.commit()
    assert (await record(other)).staging.kind is TokenKind.PLAIN
    settling.open()
    await completion
    assert await other.get("k") == 1


async def test_a_later_attempt_of_a_completion_seals_until_no_plain_row_can_land(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    await upload.dies_before_its_row(running)
    await upload.take_over(lake)
    completion, settling = await lose_and_hold(lake, running, upload.finish())
    await other.commit()
    settling.open()
    with pytest.raises(OutcomeUnknownError):  # the commit took the token of the first attempt
        await completion
    assert (await record(other)).staging.kind is TokenKind.CONDITIONAL


async def test_a_conditional_link_is_not_refused_because_of_a_commit_beside_it(
    tmp_path: Path, running: Running
) -> None:
    async with (
        running_service(tmp_path, store=Bucket) as service,
        service.another_replica() as other,
    ):
        await service.put("w", 1)
        issued = await issue(service)
        await written(service, issued)
        graveler = service.replicas.made[0]
        repository = await graveler.repositories.get("lake")
        lake = Lake(graveler, repository, service.replicas.kv, service.clock)
        work = link(service, issued.token, condition=NEW)
        linking, settling = await lose_and_hold(lake, running, work)
        await other.graveler.create_commit(other.admin, "lake", MAIN, "takes w")
        settling.open()
        await linking
        assert await other.size(MAIN, PATH) == len(BODY)


@pytest.mark.parametrize("then", ["commit", "reset"])
async def test_a_commit_judges_no_record_in_which_its_tokens_are_gone(
    lake: Lake, other: Lake, running: Running, then: str
) -> None:
    await lake.put("a", 1)
    work, settling = await lose_and_hold(lake, running, lake.commit("mine"))
    if then == "commit":
        await other.commit("theirs")
    else:
        await other.graveler.moves.reset(other.main)
    await other.put("b", 2)
    settling.open()
    made = await work
    assert made.commit_id == (await record(other)).commit_id
    assert await other.get("b", made.commit_id) == 2
    assert await other.get("a", made.commit_id) == (1 if then == "commit" else None)


async def test_a_branch_whose_repository_was_deleted_meanwhile_is_not_found(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("a", 1)
    work, settling = await lose_and_hold(lake, running, lake.commit())
    await other.graveler.branches.mark_deleted(other.main)
    settling.open()
    with pytest.raises(TarnError) as caught:
        await work
    assert caught.value.reason is Reason.BRANCH_NOT_FOUND


# ---- other fields


async def test_a_compaction_does_not_take_the_mark_of_another_one_for_its_own(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("a", 1)
    work, settling = await lose_and_hold(lake, running, lake.graveler.compacting.compact(lake.main))
    await other.commit()  # takes the tokens, and removes the mark
    lake.clock.advance(1)
    await other.put("b", 2)
    mark = lake.kv.hold("set_if", lake.branch_key, after=True)
    second = running.start(other.graveler.compacting.compact(other.main))
    await reached(mark)
    since_us = (await record(lake)).compaction_start_time_us
    assert since_us == lake.clock.now_us()
    settling.open()
    result = await work
    assert (result.outcome, result.running_since_us) == (CompactionOutcome.RUNNING, since_us)
    assert (await record(lake)).compaction_start_time_us == since_us
    mark.open()
    assert (await second).outcome is CompactionOutcome.COMPACTED


async def test_a_later_end_of_a_branch_stays_and_is_not_told_to_the_earlier_call(
    lake: Lake, other: Lake, running: Running
) -> None:
    now_us = lake.clock.now_us()
    early, late = (expiry_in(days * DAY_US, now_us) for days in (10, 20))
    work, settling = await lose_and_hold(
        lake, running, lake.graveler.expiring.set(lake.main, early)
    )
    await other.graveler.expiring.set(other.main, late)
    settling.open()
    assert (await work).expiry == early
    assert (await record(other)).expiry == late


async def test_a_default_branch_never_expires_whatever_was_set_meanwhile(
    lake: Lake, other: Lake, running: Running
) -> None:
    default_branch = DefaultBranch(lake.graveler.repositories, lake.graveler.branches)
    dev = lake.branch(BranchId("dev"))
    await lake.graveler.branches.create(dev, (await record(lake)).commit_id)
    await default_branch.set(dev, "")
    back = default_branch.set(lake.main, "")
    work, settling = await lose_and_hold(lake, running, back)
    await other.graveler.expiring.set(other.main, expiry_in(10 * DAY_US, lake.clock.now_us()))
    settling.open()
    await work
    assert (await record(other)).expiry is None

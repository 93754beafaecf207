"""Rule 5: tokens are announced before a change removes them, and dropped after no record names them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from graveler_service import Service
from lake import Lake, Running, entry

from tarn.core.branch import Branch, seal
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import InstallationKeys, path_key
from tarn.kv.port import Group, OutcomeUnknownError, Partition, Versioned
from tarn_graveler.branch.handle import BranchHandle, claims_nothing
from tarn_graveler.records.drop_list import DropList

KEYS = InstallationKeys("test")


def refused() -> TarnError:
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the list's partition does not answer")


def refuse_drop_list(
    patch: pytest.MonkeyPatch, lake: Lake, answer: TarnError, *, is_raised: bool
) -> None:
    """The store fails for the partitions of the drop list."""
    write = lake.kv.set_many

    async def set_many(partition: Partition, groups: Sequence[Group]) -> list[TarnError | None]:
        if "/cleanup/" not in partition.name:
            return await write(partition, groups)
        if is_raised:
            raise answer
        return [answer for _ in groups]

    patch.setattr(lake.kv, "set_many", set_many)


async def record(lake: Lake) -> Branch:
    return (await lake.graveler.branches.fresh(lake.main)).branch


@pytest.mark.parametrize("is_raised", [False, True])
@pytest.mark.parametrize("answer", [refused(), OutcomeUnknownError("no answer")])
async def test_a_commit_whose_tokens_cannot_be_announced_is_not_made(
    lake: Lake,
    answer: TarnError,
    is_raised: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await lake.put("x", 1)
    before = (await record(lake)).commit_id
    refuse_drop_list(monkeypatch, lake, answer, is_raised=is_raised)
    with pytest.raises(TarnError) as raised:
        await lake.commit()
    assert raised.value.kind is Kind.UNAVAILABLE
    assert (await record(lake)).commit_id == before
    assert await lake.get("x") == 1


async def test_an_announcement_whose_outcome_is_unknown_is_repeated(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One lost answer among many announced tokens does not make the commit fail."""
    await lake.put("x", 1)
    set_many, lost = lake.kv.set_many, 0

    async def lose_answers(partition: Partition, groups: Sequence[Group]) -> list[TarnError | None]:
        nonlocal lost
        answers = await set_many(partition, groups)
        if "/cleanup/" not in partition.name or lost == 3:
            return answers
        lost += 1
        return [OutcomeUnknownError("the answer is lost")] * len(answers)

    monkeypatch.setattr(lake.kv, "set_many", lose_answers)
    await lake.commit()
    assert lost == 3
    assert await lake.get("x", "main@") == 1


@pytest.mark.parametrize("is_raised", [False, True])
async def test_an_announcement_that_stays_unknown_does_not_count(
    lake: Lake,
    is_raised: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Alone: a commit would be refused because of its reflog as well."""
    tokens = (await record(lake)).tokens
    refuse_drop_list(monkeypatch, lake, OutcomeUnknownError("no answer"), is_raised=is_raised)
    with pytest.raises(TarnError) as raised:
        await lake.graveler.drops.announce(lake.main, tokens)
    assert raised.value.kind is Kind.UNAVAILABLE


async def test_a_branch_whose_tokens_cannot_be_announced_is_not_deleted(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    graveler, admin = service.graveler, service.admin
    await graveler.create_branch(admin, "lake", "dev", "main")

    async def add(*_: object) -> None:
        raise refused()

    with monkeypatch.context() as patched:
        patched.setattr(DropList, "add", add)
        with pytest.raises(TarnError) as raised:
            await graveler.delete_branch(admin, "lake", "dev")
    assert raised.value.kind is Kind.UNAVAILABLE
    assert (await graveler.get_branch(admin, "lake", "dev")).branch_id == "dev"


async def test_a_process_that_dies_after_its_commit_leaves_no_token_behind(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drop list has the tokens before the compare-and-set, so a later crash does not matter."""
    await lake.put("x", 1)
    token = await lake.staging_rows()
    set_if, changes = lake.kv.set_if, 0

    async def die_after_finish(*args: object, **named: object) -> object:
        nonlocal changes
        done = await set_if(*args, **named)  # type: ignore[arg-type]
        changes += args[1] == lake.branch_key
        if args[1] == lake.branch_key and changes == 2:
            raise RuntimeError("the process is gone")
        return done

    monkeypatch.setattr(lake.kv, "set_if", die_after_finish)
    with pytest.raises(RuntimeError):
        await lake.commit()
    await lake.drop_everything_removed()
    assert await lake.kv.scan(token, b"", None, 10) == []
    assert await lake.get("x") == 1


async def test_a_commit_that_pauses_before_its_announcement_leaves_no_token_behind(
    lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of the list passes the time of the announcement meanwhile."""
    await lake.put("x", 1)
    token = await lake.staging_rows()
    drops, pauses = lake.graveler.drops._list, 0

    class Paused:
        async def add(self, *args: Any) -> Any:
            nonlocal pauses
            pauses += 1
            for _ in range(4):
                lake.clock.advance(100)
                await other.graveler.cleaner.drop_due()
            return await drops.add(*args)

    monkeypatch.setattr(lake.graveler.drops, "_list", Paused())
    await lake.commit()
    assert pauses == 1
    monkeypatch.undo()
    await lake.drop_everything_removed()
    assert await lake.kv.scan(token, b"", None, 10) == []
    assert await lake.get("x") == 1


async def test_a_token_that_its_record_still_names_is_not_dropped(lake: Lake) -> None:
    """A commit announced its tokens and was not made; the checks for them become rarer and rarer."""
    await lake.put("x", 1)
    branch = await record(lake)
    await lake.graveler.drops.announce(lake.main, branch.tokens)
    looks = []
    for _ in range(40):
        before = len(lake.kv.calls)
        lake.clock.advance(76)
        await lake.graveler.cleaner.drop_due()
        reads = [name for operation, name in lake.kv.calls[before:] if operation == "get_many"]
        looks.append(reads.count(lake.graveler.repositories.keys_of(lake.repository).refs.name))
        assert await lake.get("x") == 1
    # After 2, 4, 8 … seconds, not in each pass: 1 to 3,040 s are eleven doublings.
    assert 3 <= sum(looks) / len(branch.tokens) <= 11
    await lake.commit()
    for _ in range(3):
        await lake.drop_everything_removed()
    assert await lake.get("x") == 1


async def abandon(lake: Lake) -> Partition:
    """A change that announced its token dies; its compare-and-set lands later. Returns the token's partition."""
    await lake.put("x", 1)
    token = await lake.staging_rows()
    await lake.graveler.drops.announce(lake.main, (await record(lake)).tokens)
    return token


async def land(lake: Lake) -> None:
    fresh = lake.graveler.branches.new_token()
    await BranchHandle(lake.graveler.branches, lake.main).change(
        lambda now, op_id: replace(seal(now, fresh, op_id), sealed=()), claims_nothing
    )


async def test_a_token_that_is_looked_at_after_a_long_downtime_is_still_dropped(lake: Lake) -> None:
    """Its next look must not be registered behind the checkpoint, which the same pass moves to now."""
    await lake.graveler.cleaner.drop_due()
    token = await abandon(lake)
    lake.clock.advance(1_500)  # no replica runs
    await lake.graveler.cleaner.drop_due()  # the record still names the token
    await land(lake)
    for _ in range(10):
        lake.clock.advance(300)
        await lake.graveler.cleaner.drop_due()
    assert await lake.kv.scan(token, b"", None, 10) == []


async def test_a_second_drop_follows_the_first_one_later_also_after_a_long_downtime(
    lake: Lake,
) -> None:
    """A queued write may land between them."""
    await lake.graveler.cleaner.drop_due()
    token = await lake.staging_rows()
    await lake.put("x", 1)
    await lake.commit()
    lake.clock.advance(100)
    await lake.graveler.cleaner.drop_due()
    lake.clock.advance(50_000)
    assert await lake.graveler.cleaner.drop_due() > 0
    assert await lake.kv.scan(token, b"", None, 10) == []
    row = Group(b"late", ((b"late", b"1"),))
    assert await lake.kv.set_many(token, [row]) == [None]
    lake.clock.advance(3_700)
    await lake.graveler.cleaner.drop_due()
    assert await lake.kv.scan(token, b"", None, 10) == []


@pytest.mark.parametrize("late", [8, 76])
async def test_a_token_is_dropped_little_more_than_a_drop_delay_after_it_was_found_unnamed(
    lake: Lake, late: int
) -> None:
    """A reader may use the record that named it for the drop delay; after that the token only takes space."""
    await lake.put("x", 1)
    token = await lake.staging_rows()
    await lake.commit()
    lake.clock.advance(late)
    await lake.graveler.cleaner.drop_due()  # checks the record
    lake.clock.advance(59)
    await lake.graveler.cleaner.drop_due()
    assert await lake.kv.scan(token, b"", None, 10)
    lake.clock.advance(60 / 8 + 2)
    await lake.graveler.cleaner.drop_due()
    assert await lake.kv.scan(token, b"", None, 10) == []


async def test_replicas_that_look_at_one_announcement_add_one_row(lake: Lake, other: Lake) -> None:
    await lake.put("x", 1)
    branch = await record(lake)
    await lake.graveler.drops.announce(lake.main, branch.tokens)
    for _ in range(5):
        for seconds in (61, 7, 13):
            lake.clock.advance(seconds)
            await lake.graveler.cleaner.drop_due()
            await other.graveler.cleaner.drop_due()
    lake.clock.advance(100_000)
    waiting = [key async for key, _ in (await DropList(lake.kv, KEYS, lake.clock).begin()).due()]
    assert len(waiting) <= 6  # one row for each time of a check, not one for each check
    assert waiting


async def test_repeated_failures_to_commit_leave_a_bounded_number_of_layers(lake: Lake) -> None:
    await lake.put("x", 1)
    build = lake.graveler.committed.build

    async def away(*_: object, **__: object) -> None:
        raise refused()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(lake.graveler.committed), "build", away)
        for number in range(50):
            with pytest.raises(TarnError):
                await lake.commit()
            if number == 9:
                assert len((await record(lake)).sealed) == 1  # no new rows, so no new layer
            if number >= 9:
                await lake.put(f"y{number}", number)
        assert len((await record(lake)).sealed) == 8
    assert lake.graveler.committed.build == build
    made = await lake.commit()
    assert made.built.added == 42
    assert (await record(lake)).sealed == ()


async def test_a_token_is_judged_by_the_record_as_it_is_decided(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that does not settle may miss the change that added a token to the record."""
    (old,) = await lake.kv.get_many(
        lake.graveler.repositories.keys_of(lake.repository).refs, [lake.branch_key]
    )
    branches = lake.graveler.branches
    await BranchHandle(branches, lake.main).change(
        lambda now, op_id: seal(now, branches.new_token(), op_id), claims_nothing
    )
    await lake.put("x", 1)
    token = (await record(lake)).staging
    await lake.graveler.drops.announce(lake.main, [token])
    get_many = lake.kv.get_many

    async def behind(
        partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        if not settle and list(keys) == [lake.branch_key]:
            return [old]
        return await get_many(partition, keys, settle=settle)

    monkeypatch.setattr(lake.kv, "get_many", behind)
    await lake.drop_everything_removed()
    monkeypatch.setattr(lake.kv, "get_many", get_many)
    assert await lake.get("x") == 1


async def test_cleaning_goes_on_after_a_failure(
    lake: Lake, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaning, passes = lake.graveler.cleaner, 0

    async def drop_due() -> int:
        nonlocal passes
        passes += 1
        if passes == 1:
            raise refused()
        return 0

    monkeypatch.setattr(cleaning, "drop_due", drop_due)
    running.start(cleaning.run())
    for _ in range(5):
        await asyncio.sleep(0)
    assert passes == 1, "it waits before it tries again"
    lake.clock.advance(3600)
    for _ in range(5):
        await asyncio.sleep(0)
    assert passes == 2


async def test_the_second_drop_of_a_token_an_hour_later_takes_late_rows_and_nothing_live(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that was never acknowledged lands in a dropped token. No reader sees it, before or after that drop."""
    layers, drop_partition = lake.graveler.layers, lake.kv.drop_partition
    dropped: list[str] = []

    async def watched(partition: Partition) -> None:
        named = {layers.partition(lake.main, token).name for token in (await record(lake)).tokens}
        assert partition.name not in named
        dropped.append(partition.name)
        await drop_partition(partition)

    monkeypatch.setattr(lake.kv, "drop_partition", watched)
    await lake.put("x", 1)
    left = layers.partition(lake.main, (await record(lake)).staging)
    await lake.commit()
    await lake.drop_everything_removed()
    assert dropped.count(left.name) == 1
    key = path_key("late")
    assert await lake.kv.set_many(left, [Group(key, ((key, entry(9)),))]) == [None]
    await lake.put("y", 2)
    assert [await lake.get(path) for path in ("x", "y", "late")] == [1, 2, None]
    lake.clock.advance(3_601)
    await lake.graveler.cleaner.drop_due()
    assert dropped.count(left.name) == 2
    assert await lake.kv.scan(left, b"", None, 10) == []
    assert [await lake.get(path) for path in ("x", "y", "late")] == [1, 2, None]
    lake.clock.advance(2 * 3_600)
    await lake.graveler.cleaner.drop_due()
    assert dropped.count(left.name) == 2

"""Events of objects: written in the atomic step of their rows, met by nothing else (docs/design/journal.md)."""

from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from lake import Lake, Replicas, Running, entry, reached
from lake_upload import Upload, seal_main
from permits import permit_for
from tests.support.clock import ManualClock, SeededIds

from tarn.core.condition import WriteCondition
from tarn.core.entry import TOMBSTONE, Entry, is_tombstone, operation_of, pack, tombstone_of
from tarn.core.errors import TarnError
from tarn.core.levels import LEVEL_FIRST, FeatureGate
from tarn.core.quota import Limits
from tarn.kv.keys import PATHS_END, PATHS_START
from tarn.kv.port import COMPANION_KEYS, Companion, OutcomeUnknownError, Partition
from tarn_graveler.branch.object_events import TARN_ITSELF, ObjectEvents, Origin
from tarn_graveler.handlers.compactors import WatchingCompactors
from tarn_graveler.handlers.staging_events import StagingEventHandler
from tarn_proto.graveler.v1 import staging_event_service_pb2 as pb_staging
from tarn_proto.store.v1 import journal_pb2 as pb

ANN = Origin(b"ann" + bytes(13))
NEW = WriteCondition(if_none_match=True)
T = TypeVar("T")


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Replicas]:
    made = Replicas(tmp_path, keeps_events=True)
    yield made
    await made.tasks.close()
    await made.kv.close()
    await made.blocks.close()


async def companions(lake: Lake, partition: Partition) -> list[Companion]:
    return await lake.kv.scan_companions(partition, b"", None, 1_000)


async def events(lake: Lake, partition: Partition | None = None) -> list[pb.JournalEvent]:
    """Returns the events of the staging token, in the order of their writes."""
    found = await companions(lake, partition or await lake.staging_rows())
    return [
        pb.JournalEvent.FromString(each.value)
        for each in sorted(found, key=lambda each: each.order)
    ]


def told(events: Sequence[pb.JournalEvent]) -> list[tuple[str, str]]:
    names = pb.JournalOperation.Name
    return [(names(each.operation).removeprefix("JOURNAL_OPERATION_"), each.key) for each in events]


async def test_each_write_and_delete_leaves_its_event_in_the_token(lake: Lake) -> None:
    """With the value of its row, and who asked; a delete of what is not there writes nothing."""
    await lake.graveler.staging.stage(lake.main, "a", entry(1), origin=ANN)
    await lake.put("a", 2)
    await lake.put("b", 3)
    assert (
        await lake.graveler.staging.unstage(lake.main, ["a", "none", "b"], origin=ANN) == [None] * 3
    )
    found = await events(lake)
    assert told(found) == [
        ("PUT", "a"),
        ("PUT", "a"),
        ("PUT", "b"),
        ("DELETE", "a"),
        ("DELETE", "b"),
    ]
    assert [each.payload for each in found] == [entry(1), entry(2), entry(3), TOMBSTONE, TOMBSTONE]
    assert [each.user_uid for each in found] == [ANN.user_uid, b"", b"", ANN.user_uid, ANN.user_uid]
    assert {each.event_id for each in found} == {b""}
    assert {each.time_us for each in found} == {lake.clock.now_us()}


async def test_an_event_is_written_by_the_request_of_its_row(lake: Lake) -> None:
    """So a PUT asks the store as often as without a journal; a row that is seen has its event."""
    await lake.put("warm", 1)
    lake.kv.calls.clear()
    await lake.put("a", 1)
    writes = [name for name, _ in lake.kv.calls if name.startswith(("set", "delete"))]
    assert writes == ["set_many"]
    lake.kv.lose("set_many", lake.row_key("b"), applied=True)
    with pytest.raises(OutcomeUnknownError):
        await lake.put("b", 2)
    lake.kv.lose("set_many", lake.row_key("c"), applied=False)
    with pytest.raises(OutcomeUnknownError):
        await lake.put("c", 3)
    assert told(await events(lake)) == [("PUT", "warm"), ("PUT", "a"), ("PUT", "b")]


async def test_no_listing_and_no_commit_meets_an_event(lake: Lake) -> None:
    """Not those of the staged rows either; the events go with their token."""
    for name in "abc":
        await lake.put(name, 1)
    token = await lake.staging_rows()
    rows = await lake.kv.scan(token, b"", None, 100)
    assert [key for key, _ in rows] == [lake.row_key(name) for name in "abc"]
    assert len(await lake.kv.scan(token, PATHS_START, PATHS_END, 100)) == 3
    result = await lake.commit()
    assert result.commit_id
    assert await lake.get("a") == 1
    assert len(await companions(lake, token)) == 3
    await lake.drop_everything_removed()
    assert await companions(lake, token) == []
    assert await events(lake) == []


async def test_an_event_keeps_its_id_over_the_attempts(lake: Lake, running: Running) -> None:
    """The first row lands in a token that is sealed before the writer looks again."""
    held = lake.kv.hold("set_many", lake.row_key("a"), after=True)
    writer = running.start(lake.put("a", 1))
    await reached(held)
    first = await lake.staging_rows()
    await lake.commit(allow_empty=True)
    held.open()
    await writer
    (one,) = await companions(lake, first)
    (other,) = await companions(lake, await lake.staging_rows())
    assert one.key != other.key
    assert not pb.JournalEvent.FromString(one.value).event_id
    assert COMPANION_KEYS + pb.JournalEvent.FromString(other.value).event_id == one.key


async def test_a_conditional_write_that_is_refused_has_no_event(lake: Lake) -> None:
    """Writes and deletes whose condition holds have one, beside their compare-and-set."""
    packed = pack(Entry(1, 0, bytes(16), bytes(16), operation_id="op"))
    conditional = lake.graveler.conditional
    await conditional.stage(lake.main, "a", packed, NEW, origin=ANN)
    other = pack(Entry(2, 0, bytes(16), bytes(16), operation_id="other"))
    with pytest.raises(TarnError):
        await conditional.stage(lake.main, "a", other, NEW)
    exists = WriteCondition(if_match="*")
    await conditional.stage(lake.main, "a", tombstone_of("gone"), exists, origin=ANN)
    found = await events(lake)
    assert (await lake.staging_rows()).kind.value == "register"
    assert told(found) == [("PUT", "a"), ("DELETE", "a")]
    assert operation_of(found[0].payload) == "op"
    assert is_tombstone(found[1].payload)
    assert {each.user_uid for each in found} == {ANN.user_uid}


async def test_a_race_of_conditional_writes_leaves_one_event(lake: Lake, running: Running) -> None:
    """The loser's compare-and-set is refused, and its event with it."""
    conditional = lake.graveler.conditional
    packed = [pack(Entry(n, 0, bytes(16), bytes(16), operation_id=f"op{n}")) for n in (1, 2)]
    await lake.put("seals", 1)
    await conditional.stage(lake.main, "first", packed[0], NEW)
    held = lake.kv.hold("set_if", lake.row_key("a"))
    loser = running.start(conditional.stage(lake.main, "a", packed[0], NEW))
    await reached(held)
    await conditional.stage(lake.main, "a", packed[1], NEW)
    held.open()
    with pytest.raises(TarnError):
        await loser
    (event,) = [each for each in await events(lake) if each.key == "a"]
    assert event.payload == await _row(lake, "a")


async def test_a_completion_leaves_its_event(lake: Lake, upload: Upload) -> None:
    """Beside its row and its note; again, with the same id, when it is repeated in another token."""
    first = await lake.staging_rows()
    lake.kv.lose("set_many", lake.row_key("k"), applied=True)
    with pytest.raises(OutcomeUnknownError):
        await upload.finish()
    await seal_main(lake)
    await upload.finish()
    second = await lake.staging_rows()
    assert first != second
    both = [*await events(lake, first), *await events(lake, second)]
    found = [each for each in both if each.key == "k"]
    assert told(found) == [("COMPLETE_UPLOAD", "k")] * 2
    assert len({each.event_id for each in found}) == 1
    assert len({each.payload for each in found}) == 1


async def _row(lake: Lake, path: str) -> bytes:
    (row,) = await lake.kv.get_many(await lake.staging_rows(), [lake.row_key(path)])
    assert row is not None
    return row.value


def maker(*, is_on: bool = True, level: int | None = None) -> ObjectEvents:
    clock = ManualClock()
    features = FeatureGate.at(LEVEL_FIRST if level is None else level)
    return ObjectEvents(clock, SeededIds(clock, seed=1), features, is_on=is_on)


def test_a_store_of_the_first_level_gets_no_events() -> None:
    """Its replicas of the last release write none, so a journal would have gaps; nor does one whose journal is off."""
    for events in (maker(), maker(is_on=False, level=2)):
        assert events.put(TARN_ITSELF).companions("a", b"x") == ()
    assert len(maker(level=2).put(TARN_ITSELF).companions("a", b"x")) == 1


async def _slow(lake: Lake, running: Running, operation: str, work: Coroutine[Any, Any, T]) -> T:
    """Runs a write whose request waits for more than nine minutes."""
    held = lake.kv.hold(operation)
    task = running.start(work)
    await reached(held)
    lake.clock.advance(541)
    held.open()
    return await task


async def test_a_write_whose_event_is_old_is_an_unknown_outcome(
    lake: Lake, running: Running
) -> None:
    """Rounds of the drain read the events of ten minutes again, so the file with this one may come late."""
    await lake.put("a", 1)
    with pytest.raises(OutcomeUnknownError, match="541 s"):
        await _slow(lake, running, "set_many", lake.put("b", 2))
    (deleted,) = await _slow(lake, running, "set_many", lake.delete("a"))
    assert isinstance(deleted, OutcomeUnknownError)
    packed = pack(Entry(5, 0, bytes(16), bytes(16), operation_id="op"))
    await lake.graveler.conditional.stage(lake.main, "c", packed, NEW)
    packed = pack(Entry(5, 0, bytes(16), bytes(16), operation_id="op2"))
    write = lake.graveler.conditional.stage(lake.main, "d", packed, NEW)
    with pytest.raises(OutcomeUnknownError, match="541 s"):
        await _slow(lake, running, "set_if", write)
    assert [key for _, key in told(await events(lake))] == ["c", "d"], "each is written"


async def test_a_completion_whose_event_is_old_is_an_unknown_outcome(
    lake: Lake, upload: Upload, running: Running
) -> None:
    with pytest.raises(OutcomeUnknownError, match="541 s"):
        await _slow(lake, running, "set_many", upload.finish())


async def test_an_attempt_with_a_young_event_is_acknowledged(lake: Lake, running: Running) -> None:
    """What counts is the key of the row that is acknowledged, not that of an attempt before."""
    held = lake.kv.hold("set_many", lake.row_key("a"))
    writer = running.start(lake.put("a", 1))
    await reached(held)
    lake.clock.advance(541)
    await seal_main(lake)
    held.open()
    await writer
    lake.clock.advance(540)
    await lake.put("b", 1)


async def test_an_overwritten_path_counts_as_often_as_it_was_written(lake: Lake) -> None:
    """For compactors and for quotas: each write has left an event, which goes with its token only."""
    for size in (1, 2, 3):
        await lake.put("a", size)
    await lake.put("b", 10)
    await lake.delete("b")
    statistics = lake.graveler.staging_statistics
    rows = await statistics.count(lake.main, 100)
    found = await statistics.count(lake.main, 100, with_events=True)
    assert (found.rows, found.events, found.is_truncated) == (2, 5, False)
    assert found.size_bytes > rows.size_bytes
    few = await statistics.count(lake.main, 3, with_events=True)
    assert (few.events, few.is_truncated) == (3, True)
    request = pb_staging.MeasureStagingRequest(branch_id="main", rows_max=100)
    handler = StagingEventHandler(lake.graveler, WatchingCompactors(lake.clock))
    measured = await handler.MeasureStaging(request, permit_for(request, lake.repository))
    assert (measured.rows, measured.tombstones) == (5, 1)
    counter = lake.graveler.admission.counter
    assert await counter.staged(lake.repository, Limits()) == (4, 16)
    await seal_main(lake)
    await lake.put("a", 4)
    assert await counter.staged(lake.repository, Limits()) == (5, 20)
    await lake.commit()
    assert await counter.staged(lake.repository, Limits()) == (0, 0)
    assert (await statistics.count(lake.main, 100, with_events=True)).events == 0


def test_completions_of_one_upload_have_one_id() -> None:
    """By whichever process: the id follows from the upload."""
    ids = set()
    for _ in range(2):
        mutation = maker(level=2).complete(TARN_ITSELF, "upload")
        for _ in range(2):
            ((_, value),) = mutation.companions("a", b"x")
            event = pb.JournalEvent.FromString(value)
            ids.add(event.event_id)
            assert event.operation == pb.JOURNAL_OPERATION_COMPLETE_UPLOAD
    assert len(ids) == 1
    assert len(ids.pop()) == 16

"""Rows of a journal are read by spans: together they have what the rules say, each place in one span."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import msgspec
import pyarrow as pa
import pytest
from journals import branch_record, model, random_events, record, row
from tests.support.clock import ManualClock

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey, BlockStore
from tarn.core.errors import TarnError
from tarn.core.ids import MetarangeId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.spans import PathSpan
from tarn.journal import files
from tarn.journal.accounts import Accounts
from tarn.journal.epochs import Epoch, EpochCause, begin_epoch, next_epoch
from tarn.journal.events import EventRow, table_of
from tarn.journal.groups import FileGroups, RowGroup
from tarn.journal.reading import EpochReader, Source, path_of
from tarn.journal.replay import RANKED_SCHEMA, branch_of, ranks_of, topmost
from tarn.journal.writing import BranchPass, JournalWriter, write_base
from tarn_spark.journal import dividing, spreading
from tarn_spark.journal.dividing import Sample, by_span, ends_of, is_wanted, parts_of
from tarn_spark.journal.sources import as_bytes, sha256_in
from tarn_spark.journal.spreading import (
    FileTold,
    InPlace,
    JudgeFiles,
    RecordsTold,
    SpreadFiles,
    TakeTold,
    taken,
)

LAKE = "mem://lake"
ENDS = [b"mai\0b", b"main\0a", b"main\0b", b"z\0a"]
RULE = BreakRule(rows_mean=2)


@pytest.fixture
def blocks() -> BlockStore:
    return MemBlockStore(ManualClock())


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_ROW_GROUP_ROWS", 3)


async def tables(events: Sequence[EventRow]) -> AsyncIterator[pa.Table]:
    yield table_of(events)


async def written(
    blocks: BlockStore, events: Sequence[EventRow], *, in_base: int = 0
) -> tuple[Epoch, list[Source]]:
    """Writes events, some of them into a base, the others into two passes; returns all files."""
    epoch = next_epoch(None, "e" * 32, EpochCause.ENABLED, 1)
    base = await write_base(blocks, LAKE, epoch.folder, tables(events[:in_base]))
    epoch = msgspec.structs.replace(epoch, base=base)
    await begin_epoch(blocks, LAKE, epoch)
    writer = JournalWriter(blocks, LAKE, epoch, "a" * 32)
    later = events[in_base:]
    for some in (later[: len(later) // 2], later[len(later) // 2 :]):
        tokens: dict[str, set[str]] = {each.branch: set() for each in some if each.branch}
        for each in some:
            if each.token:
                tokens[each.branch].add(each.token)
        passed = [BranchPass(name, 1, sorted(found)) for name, found in tokens.items()]
        await writer.write(2, table_of(some), passed, is_full=False)
    reader = EpochReader(blocks, LAKE, epoch, Accounts(1, 1))
    return epoch, [*epoch.base, *await reader.names()]


async def told_by(
    blocks: BlockStore, epoch: Epoch, sources: Sequence[Source]
) -> tuple[list[FileTold], RecordsTold]:
    items = [(at, as_bytes(each)) for at, each in enumerate(sources)]
    told = [each async for each in JudgeFiles(LAKE, epoch, RULE)(blocks, items)]
    *found, records = TakeTold()(told)
    assert isinstance(records, RecordsTold)
    return [each for each in found if isinstance(each, FileTold)], records


def ranks_in(records: RecordsTold) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for key, (_, payload) in records.newest.items():
        if branch := branch_of(key, payload) if payload else None:
            ranks |= ranks_of(key, branch)
    return ranks


def wanted(told: FileTold, ranks: dict[bytes, int]) -> FileGroups:
    assert told.groups is not None
    groups = tuple(each for each in told.groups.groups if is_wanted(each, ranks))
    return msgspec.structs.replace(told.groups, groups=groups)


async def items_of(
    blocks: BlockStore,
    reading: SpreadFiles,
    sources: Sequence[Source],
    told: Sequence[FileTold],
    *,
    exchanged: int,
) -> list[list[InPlace | bytes]]:
    """Returns what the task of each span gets; the first files are exchanged."""
    found: list[list[InPlace | bytes]] = [[] for _ in range(len(reading.ends) + 1)]
    asked = [(as_bytes(sources[at]), sha256_in(told[at].facts)) for at in range(exchanged)]
    async for span, piece in reading(blocks, asked):
        found[span].append(piece)
    for at in range(exchanged, len(sources)):
        for span, groups in (
            by_span(wanted(told[at], dict(reading.ranks)), reading.ends) or {}
        ).items():
            found[span].append(InPlace(as_bytes(sources[at]), groups))
    return found


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("exchanged", [0, 1, 3])
async def test_spans_have_together_what_the_rules_say(
    monkeypatch: pytest.MonkeyPatch, exchanged: int
) -> None:
    monkeypatch.setattr(dividing, "_READS_MAX", 100)
    for seed in range(8):
        events = random_events(random.Random(seed))
        blocks = MemBlockStore(ManualClock())
        epoch, sources = await written(blocks, events, in_base=len(events) // 3)
        told, records = await told_by(blocks, epoch, sources)
        ranks = ranks_in(records)
        reading = SpreadFiles(LAKE, epoch, ENDS, ranks)
        staged: dict[str, dict[str, bytes]] = {}
        count = 0
        for span, items in enumerate(
            await items_of(blocks, reading, sources, told, exchanged=exchanged)
        ):
            after = ENDS[span - 1] if span else b""
            found = await taken(blocks, items, reading, span)
            count += len(found)
            for each in topmost(found).to_pylist():
                place = bytes(each["place"])
                assert after < place
                assert span == len(ENDS) or place <= ENDS[span]
                name, _, path = place.decode().partition("\0")
                assert path not in staged.setdefault(name, {}), "a place is in one span"
                staged[name][path] = each["payload"]
        kept = {key: payload for key, (_, payload) in records.newest.items() if payload}
        assert (kept, staged) == model(events)
        assert count == sum(f"{each.branch}\0{each.token}".encode() in ranks for each in events)


async def one_file(blocks: BlockStore) -> tuple[Epoch, list[Source], FileTold, SpreadFiles]:
    events = [row(f"k{at:03}", b"x", at, token="t0") for at in range(40)]
    events.append(record("branches/main", branch_record(["t0"]), 50))
    epoch, sources = await written(blocks, events)
    told, records = await told_by(blocks, epoch, sources)
    return epoch, sources, told[1], SpreadFiles(LAKE, epoch, [], ranks_in(records))


async def replaced(blocks: BlockStore, epoch: Epoch, source: Source, body: bytes) -> None:
    key = BlockKey(LAKE, path_of(epoch, source))
    await blocks.delete_many(LAKE, [key.path])
    await blocks.put(key, body)


@pytest.mark.usefixtures("small_groups")
async def test_a_file_that_changed_after_it_was_judged_is_refused(blocks: BlockStore) -> None:
    epoch, sources, told, reading = await one_file(blocks)
    key = BlockKey(LAKE, path_of(epoch, sources[told.at]))
    body = await blocks.read(key)
    groups = wanted(told, dict(reading.ranks))
    inside = InPlace(as_bytes(sources[told.at]), groups)
    asked = [(as_bytes(sources[told.at]), sha256_in(told.facts))]
    assert len(await taken(blocks, [inside], reading, 0))
    for at in (groups.groups[0].start, groups.groups[-1].end - 1, groups.footer + 5):
        other = bytearray(body)
        other[at] ^= 1
        await replaced(blocks, epoch, sources[told.at], bytes(other))
        with pytest.raises(TarnError, match="has changed or gone while the journal was read"):
            await taken(blocks, [inside], reading, 0)
        with pytest.raises(TarnError, match="has changed or gone while the journal was read"):
            _ = [each async for each in reading(blocks, asked)]
    await blocks.delete_many(LAKE, [key.path])
    with pytest.raises(TarnError, match="has changed or gone while the journal was read"):
        await taken(blocks, [inside], reading, 0)
    with pytest.raises(TarnError, match="has changed or gone while the journal was read"):
        _ = [each async for each in reading(blocks, asked)]


@pytest.mark.usefixtures("small_groups")
async def test_groups_of_tokens_that_no_record_names_are_not_read(blocks: BlockStore) -> None:
    events = [row(f"k{at:03}", b"x", at, token=f"t{at % 2}") for at in range(40)]
    events.append(record("branches/main", branch_record(["t0"]), 50))
    epoch, sources = await written(blocks, events)
    told, records = await told_by(blocks, epoch, sources)
    ranks = ranks_in(records)
    for each in told[1:]:
        assert each.groups is not None
        kept = wanted(each, ranks).groups
        assert {group.token for group in kept} <= {"t0", None}
        assert len(kept) < len(each.groups.groups)
    assert epoch.number == 1


def test_many_rows_of_a_span_travel_as_small_pieces() -> None:
    count = 2 * spreading._PIECE_ROWS + 1
    table = pa.table(
        {
            "place": pa.array([f"main\0a{at:05}" for at in range(count)], pa.binary()),
            "rank": [0] * count,
            "order": list(range(count)),
            "payload": pa.array([b"x"] * count, pa.binary()),
        }
    )
    pieces = [
        pa.ipc.read_record_batch(each, RANKED_SCHEMA)
        for span, each in spreading.spread([table], ENDS)
        if span == 2
    ]
    assert [len(each) for each in pieces] == [spreading._PIECE_ROWS, spreading._PIECE_ROWS, 1]
    assert pa.Table.from_batches(pieces).column("order").to_pylist() == list(range(count))


def test_the_parts_of_a_branch_cover_all_paths_once() -> None:
    base = MetarangeId("b" * 64)
    parts = parts_of(ENDS, dict.fromkeys(("mai", "main", "other", "z"), (base, base)))
    found: dict[str, list[PathSpan]] = {}
    for span in range(len(ENDS) + 1):
        for part in parts[span]:
            found.setdefault(part.branch_id, []).append(part.paths)
    assert {name: len(spans) for name, spans in found.items()} == {
        "mai": 2,
        "main": 3,
        "other": 1,
        "z": 2,
    }
    assert [part.branch_id for part in parts[1]] == ["mai", "main"]
    assert [part.branch_id for part in parts[3]] == ["main", "other", "z"]
    for spans in found.values():
        assert (spans[0].start, spans[-1].end) == ("", None)
        assert all(before.end == after.start for before, after in pairwise(spans))


@pytest.mark.usefixtures("small_groups")
async def test_a_sample_has_places_where_listings_are_cut(
    blocks: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dividing, "_OF_GROUPS", 1)
    events = random_events(random.Random(2))
    epoch, sources = await written(blocks, events)
    told, _ = await told_by(blocks, epoch, sources)
    found = sorted(cut for each in told for sample in each.samples for cut in sample.cuts)
    assert found == sorted(
        f"{each.branch}\0{each.key}".encode()
        for each in events
        if each.token and RULE.ends_after(pa.array([each.key], pa.string()))[0]
    )
    assert 0 < len(found) < len(events)


def test_spans_have_about_as_many_rows_each() -> None:
    places = [f"main\0{at:03}".encode() for at in range(100)]
    light = Sample(0, places[:50], places[:50:5])
    heavy = Sample(1, places[50:] * 3, places[50::5])
    found = ends_of([light, heavy], 2000, 500)
    assert found == [places[45], places[65], places[85]]
    assert ends_of([light, heavy], 500, 500) == []
    assert ends_of([], 1000, 10) == []
    assert ends_of([Sample(0, places, [])], 1000, 10) == []


def test_a_file_of_which_each_span_needs_little_is_exchanged() -> None:
    ends = [f"main\0{at:03}".encode() for at in range(99)]

    def file(*places: tuple[int, int]) -> FileGroups:
        groups = tuple(
            RowGroup(
                at,
                10,
                0,
                0,
                b"",
                "main",
                "t",
                f"main\0{first:03}".encode(),
                f"main\0{last:03}".encode(),
            )
            for at, (first, last) in enumerate(places)
        )
        return FileGroups(1, 1, b"", groups)

    narrow = by_span(file((0, 2), (3, 4), (99, 99)), ends)
    assert narrow is not None
    assert {span: [each.number for each in found.groups] for span, found in narrow.items()} == {
        0: [0],
        1: [0],
        2: [0],
        3: [1],
        4: [1],
        99: [2],
    }
    assert by_span(file((0, 98)), ends) is None
    assert by_span(file(), ends) == {}

"""Rows of a journal are spread over spans: together they have what the rules say, each place in one span."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
from journals import batch_of, model, random_events

from tarn.core.ids import MetarangeId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.spans import PathSpan
from tarn.journal.epochs import EpochCause, next_epoch
from tarn.journal.replay import RANKED_SCHEMA, branch_of, ranked, ranks_of, topmost
from tarn_spark.journal import rebuild

EPOCH = next_epoch(None, "e" * 32, EpochCause.ENABLED, 1)
ENDS = [b"mai\0b", b"main\0a", b"main\0b", b"z\0a"]


def spread(table: pa.Table, ranks: dict[bytes, int]) -> Iterator[tuple[int, pa.Table]]:
    spreading = rebuild._Spread("local://lake", EPOCH, ranks, ENDS)
    halves = [table.slice(0, len(table) // 2), table.slice(len(table) // 2)]
    for part in spreading._spread([ranked(each, ranks) for each in halves]):
        (rows,) = rebuild._unpacked([part.column("rows")[0].as_buffer()])
        yield part.column("span")[0].as_py(), rows


def test_spans_have_together_what_the_rules_say() -> None:
    for seed in range(8):
        events = random_events(random.Random(seed))
        table = pa.Table.from_batches([batch_of(events)])
        records: dict[str, tuple[int, bytes]] = {}
        for row in rebuild._records_in(table):
            if "payload" in row:
                records[row["key"]] = row["order"], row["payload"]
        kept = {key: payload for key, (_, payload) in records.items() if payload}
        ranks: dict[bytes, int] = {}
        for key, payload in kept.items():
            if branch := branch_of(key, payload):
                ranks |= ranks_of(key, branch)
        staged: dict[str, dict[str, bytes]] = {}
        for span, rows in spread(table, ranks):
            after = ENDS[span - 1] if span else b""
            for row in topmost(rows).to_pylist():
                place = bytes(row["place"])
                assert after < place
                assert span == len(ENDS) or place <= ENDS[span]
                name, _, path = place.decode().partition("\0")
                assert path not in staged.setdefault(name, {}), "a place is in one span"
                staged[name][path] = row["payload"]
        assert (kept, staged) == model(events)


def test_many_rows_of_a_span_travel_as_small_tables() -> None:
    rows = [(f"main\0a{at:05}".encode(), 0, at, b"x") for at in range(2 * rebuild._PIECE_ROWS + 1)]
    columns = [list(each) for each in zip(*rows, strict=True)]
    table = pa.table(columns, schema=RANKED_SCHEMA)
    sent = list(rebuild._Spread("local://lake", EPOCH, {}, ENDS)._spread([table]))
    assert [each.num_rows for each in sent] == [1, 1, 1]
    found = list(rebuild._unpacked(each.column("rows")[0].as_buffer() for each in sent))
    assert max(map(len, found)) == rebuild._PIECE_ROWS
    assert pa.concat_tables(found).equals(table)


def test_the_parts_of_a_branch_cover_all_paths_once() -> None:
    base = MetarangeId("b" * 64)
    parts = rebuild._parts(ENDS, dict.fromkeys(("mai", "main", "other", "z"), (base, base)))
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


def test_a_sample_has_places_where_listings_are_cut() -> None:
    events = random_events(random.Random(2))
    rule = BreakRule(rows_mean=2)
    found = rebuild._sample(pa.Table.from_batches([batch_of(events)]), rule)
    wanted = [
        each.key
        for each in events
        if each.token and rule.ends_after(pa.array([each.key], pa.string()))[0]
    ]
    assert found.column("key").to_pylist() == wanted
    assert 0 < len(wanted) < sum(bool(each.token) for each in events)

"""Rows of a journal are spread over spans: together they have what the rules say, each place in one span."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from journals import batch_of, model, random_events

from tarn.core.errors import TarnError
from tarn.core.ids import MetarangeId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.spans import PathSpan
from tarn.journal.epochs import BaseFile
from tarn.journal.names import PassName
from tarn.journal.replay import RANKED_SCHEMA, branch_of, ranks_of, topmost
from tarn_spark.journal import dividing, spreading
from tarn_spark.journal.dividing import parts_of

ENDS = [b"mai\0b", b"main\0a", b"main\0b", b"z\0a"]


Held = dict[int, list[spreading.Piece]]
"""Pieces by partition."""


def spread(*files: pa.Table) -> Held:
    """Spreads the rows of files, each of which has its position as its SHA-256."""
    held = spreading.Held()
    for at, table in enumerate(files):
        held.add(at, str(at), table)
    found: Held = {}
    for partition, piece in spreading.spread(held, ENDS):
        found.setdefault(partition, []).append(piece)
    return found


def records_of(*tables: pa.Table) -> dict[str, bytes]:
    told = spreading.RecordsTold({}, set(), Counter())
    for table in tables:
        told.add(spreading.records_in(table))
    return {key: payload for key, (_, payload) in told.newest.items() if payload}


def ranks_in(records: dict[str, bytes]) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for key, payload in records.items():
        if branch := branch_of(key, payload):
            ranks |= ranks_of(key, branch)
    return ranks


def halves(table: pa.Table) -> list[pa.Table]:
    return [table.slice(0, len(table) // 2), table.slice(len(table) // 2)]


@pytest.mark.parametrize("few_layers", [0, 16])
def test_spans_have_together_what_the_rules_say(
    monkeypatch: pytest.MonkeyPatch, few_layers: int
) -> None:
    monkeypatch.setattr(spreading, "_FEW_LAYERS", few_layers)
    for seed in range(8):
        events = random_events(random.Random(seed))
        table = pa.Table.from_batches([batch_of(events)])
        kept = records_of(*halves(table))
        staged: dict[str, dict[str, bytes]] = {}
        count = 0
        for partition, pieces in spread(*halves(table)).items():
            span = partition - 1
            after = ENDS[span - 1] if span else b""
            found = spreading.taken(pieces, {0: "0", 1: "1"}, ranks_in(kept))
            count += found.rows
            for row in topmost(found.table).to_pylist():
                place = bytes(row["place"])
                assert after < place
                assert span == len(ENDS) or place <= ENDS[span]
                name, _, path = place.decode().partition("\0")
                assert path not in staged.setdefault(name, {}), "a place is in one span"
                staged[name][path] = row["payload"]
        assert (kept, staged) == model(events)
        assert count == sum(bool(each.token) for each in events)


def test_a_file_that_does_not_count_leaves_no_rows() -> None:
    events = random_events(random.Random(3))
    first, second = halves(pa.Table.from_batches([batch_of(events)]))
    ranks = ranks_in(records_of(first, second))
    both, alone = spread(first, second), spread(second)
    assert both.keys() >= alone.keys()
    rows = 0
    for partition, pieces in both.items():
        found = spreading.taken(pieces, {1: "1"}, ranks)
        wanted = spreading.taken(alone.get(partition, []), {0: "0"}, ranks)
        assert topmost(found.table).sort_by("place") == topmost(wanted.table).sort_by("place")
        assert found.rows == wanted.rows
        rows += found.rows
    assert 0 < rows < sum(bool(each.token) for each in events)


def test_rows_of_another_reading_of_a_file_are_refused() -> None:
    table = pa.Table.from_batches([batch_of(random_events(random.Random(4)))])
    for pieces in spread(table).values():
        with pytest.raises(TarnError, match="has changed or gone while the journal was read"):
            spreading.taken(pieces, {0: "other"}, {})


def test_many_rows_of_a_span_travel_as_small_pieces() -> None:
    count = 2 * spreading._PIECE_ROWS + 1
    rows = [(f"a{at:05}", at) for at in range(count)]
    table = pa.table(
        {
            "branch": ["main"] * count,
            "token": ["t"] * count,
            "order": [order for _, order in rows],
            "key": [key for key, _ in rows],
            "payload": pa.array([b"x"] * count, pa.binary()),
        }
    )
    (pieces,) = spread(table).values()
    sizes = [len(pa.ipc.read_record_batch(each.rows, RANKED_SCHEMA)) for each in pieces]
    assert sizes == [spreading._PIECE_ROWS, spreading._PIECE_ROWS, 1]
    found = spreading.taken(pieces, {0: "0"}, {b"main\0t": 0})
    assert found.table.column("order").to_pylist() == [order for _, order in rows]


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


def test_a_sample_has_places_where_listings_are_cut() -> None:
    events = random_events(random.Random(2))
    rule = BreakRule(rows_mean=2)
    table = pa.Table.from_batches([batch_of(events)])
    rows = table.filter(pc.not_equal(table.column("token"), ""))
    wanted = [
        f"{each.branch}\0{each.key}".encode()
        for each in events
        if each.token and rule.ends_after(pa.array([each.key], pa.string()))[0]
    ]
    assert dividing._places(rows, rule) == wanted
    assert 0 < len(wanted) < len(rows)


def test_all_named_files_are_sampled_and_some_passes_stand_for_all() -> None:
    base = [BaseFile(at, 1, "0" * 64) for at in range(40)]
    passes = [PassName("a" * 32, at, "2026-11-30") for at in range(1000)]
    found = dividing.sampled([*base, *passes])
    assert [weight for weight, _ in found[:40]] == [1.0] * 40
    assert len(found) == 40 + 63
    assert sum(weight for weight, _ in found) == pytest.approx(1040)
    for few in range(4):
        assert sum(weight for weight, _ in dividing.sampled(passes[:few])) == pytest.approx(few)


def test_spans_have_about_as_many_rows_each() -> None:
    places = [f"main\0{at:03}".encode() for at in range(100)]
    light = dividing.Sample(1.0, 500, places[:50])
    heavy = dividing.Sample(3.0, 500, places[50:])
    assert dividing.ends_of([light, heavy], 500) == [places[49], places[66], places[83]]
    assert dividing.ends_of([light, heavy], 2000) == []
    assert dividing.ends_of([], 10) == []
    assert dividing.ends_of([dividing.Sample(1.0, 100, [])], 10) == []

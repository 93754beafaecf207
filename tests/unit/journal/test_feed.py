"""The feed has each event once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from journals import batch_of, record, row

from tarn.journal.events import BASE_ID, EventRow, rows_of
from tarn.journal.feed import feed

_rows = st.builds(
    row,
    st.sampled_from("ab"),
    st.sampled_from((b"", b"p", b"q")),
    st.integers(0, 2),
    token=st.sampled_from(("t0", "t1")),
    number=st.integers(1, 12),
)


def fed(rows: list[EventRow], told: list[bytes], *, run_bytes: int = 1 << 20) -> list[EventRow]:
    batches = [batch_of(rows[at : at + 4]) for at in range(0, len(rows), 4)]
    ids = [pa.array([each], pa.binary(16)) for each in told]
    with tempfile.TemporaryDirectory() as folder:
        found = list(feed(batches, ids, Path(folder) / "new", run_bytes=run_bytes))
    return [each for batch in found for each in rows_of(batch)]


def _choice(each: EventRow) -> tuple[str, str, int, str, bytes]:
    return each.branch, each.token, each.order, each.key, each.payload


@given(st.lists(_rows, max_size=30), st.data())
def test_each_event_comes_once_whatever_is_repeated(
    rows: list[EventRow], data: st.DataObject
) -> None:
    told = data.draw(st.lists(st.integers(1, 12).map(lambda n: n.to_bytes(16, "big")), max_size=4))
    shuffled = data.draw(st.permutations(rows + rows))
    found = fed(shuffled, told, run_bytes=data.draw(st.sampled_from((1, 400, 1 << 20))))
    ids = [each.event_id for each in found]
    assert ids == sorted({each.event_id for each in rows} - set(told))
    for each in found:
        assert each == min((r for r in rows if r.event_id == each.event_id), key=_choice)


def test_a_write_that_met_a_seal_is_one_event_and_records_are_in_the_feed() -> None:
    rows = [row("a", b"p", 1, token="t0", number=7), row("a", b"p", 1, token="t1", number=7)]
    found = fed([*rows, record("tags/v1", b"t", 3, number=8)], [])
    assert [(each.key, each.token) for each in found] == [("a", "t0"), ("tags/v1", "")]


def test_rows_of_a_base_are_no_events() -> None:
    import dataclasses

    assert fed([dataclasses.replace(row("a", b"p", 1), event_id=BASE_ID)], []) == []

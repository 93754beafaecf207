"""A rebuild gives the same state whatever the order, repetition and number of the files, and each rule is needed."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import journals
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from journals import GUARDS, batch_of, branch_record, model, record, row, state_of

from tarn.core.errors import Kind, TarnError
from tarn.journal import runs
from tarn.journal.events import EventRow
from tarn.journal.replay import (
    Record,
    Replay,
    StagedRows,
    branch_of,
    numbered,
    ranks_of,
    replay,
    topmost,
    with_ranks,
)

_PATHS = ("a", "a\0b", "b", "é", "key/with/slash")
_TOKENS = ("t0", "t1", "t2", "t3")
_PAYLOADS = (b"", b"p", b"q", b"\xff" * 40)

_rows = st.builds(
    row,
    st.sampled_from(_PATHS),
    st.sampled_from(_PAYLOADS),
    st.integers(0, 3),
    token=st.sampled_from(_TOKENS),
    branch=st.sampled_from(("main", "mai", "z")),
    number=st.integers(1, 9),
    time_us=st.integers(0, 3),
)
_branch_payloads = st.one_of(
    st.just(b""),
    st.builds(
        branch_record,
        st.lists(st.sampled_from(_TOKENS), min_size=1, unique=True),
        commit=st.sampled_from("cd"),
        pending=st.booleans(),
    ),
)
_records = st.one_of(
    st.builds(
        record,
        st.sampled_from(("branches/main", "branches/mai", "branches/z")),
        _branch_payloads,
        st.integers(0, 3),
    ),
    st.builds(
        record,
        st.sampled_from(("tags/v1", "settings")),
        st.sampled_from(_PAYLOADS),
        st.integers(0, 3),
    ),
)
_events = st.lists(st.one_of(_rows, _rows, _rows, _records), max_size=40)


def replayed(batches: list[list[EventRow]], *, run_bytes: int = 1 << 20) -> journals.State:
    with tempfile.TemporaryDirectory() as folder:
        one = Replay(Path(folder) / "new", run_bytes=run_bytes)
        try:
            for batch in batches:
                one.add(batch_of(batch))
            return state_of(one.results())
        finally:
            one.close()


@given(_events)
def test_a_replay_is_what_the_rules_say(events: list[EventRow]) -> None:
    assert replayed([events]) == model(events)


@given(_events)
def test_without_sorting_the_same_rows_count(events: list[EventRow]) -> None:
    """What Spark does with all rows of a place, and what a rebuild does with sorted runs."""
    rows = pa.Table.from_batches([batch_of(events)])
    records, staged = model(events)
    ranks: dict[bytes, int] = {}
    for key, payload in records.items():
        if branch := branch_of(key, payload):
            ranks |= ranks_of(key, branch)
    layers, staged_only = numbered(rows)
    known = np.array([ranks.get(each, -1) for each in layers], np.int64)
    found = topmost(with_ranks(staged_only, known))
    places = [bytes(each).decode() for each in found.column("place").to_pylist()]
    payloads = found.column("payload").to_pylist()
    assert len({*places}) == len(places)
    assert dict(zip(places, payloads, strict=True)) == {
        f"{name}\0{path}": payload
        for name, paths in staged.items()
        for path, payload in paths.items()
    }


@given(_events, st.data())
def test_order_repetition_and_files_change_nothing(
    events: list[EventRow], data: st.DataObject
) -> None:
    again = data.draw(st.lists(st.sampled_from(events), max_size=20)) if events else []
    shuffled = data.draw(st.permutations(events + again))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(shuffled)), max_size=5)))
    edges = [0, *cuts, len(shuffled)]
    batches = [shuffled[a:b] for a, b in pairwise(edges)]
    run_bytes = data.draw(st.sampled_from((1, 300, 1 << 20)))
    assert replayed(batches, run_bytes=run_bytes) == model(events)


@given(_events, st.data())
def test_many_runs_are_merged_in_turns(events: list[EventRow], data: st.DataObject) -> None:
    """With two runs at a time, and batches of few rows, in which one path may be in several."""
    shuffled = data.draw(st.permutations(events + events))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_FAN_IN", 2)
        patch.setattr(runs, "_BATCH_BYTES", data.draw(st.sampled_from((1, 200))))
        batches = [shuffled[at : at + 3] for at in range(0, len(shuffled), 3)]
        assert replayed(batches, run_bytes=1) == model(events)


MAIN = "branches/main"
TAKES_T0 = record(MAIN, branch_record(["t0"]), 1)
NEEDED: dict[str, list[EventRow]] = {
    # A clock went back: the later write has the earlier time.
    "store's order": [TAKES_T0, row("a", b"old", 1, time_us=9), row("a", b"new", 2, time_us=1)],
    "ties": [TAKES_T0, row("a", b"p", 1), row("a", b"q", 1)],
    # A write of the sealed token that came late, with a greater timestamp.
    "layers": [
        record(MAIN, branch_record(["t1", "t0"]), 2),
        row("a", b"new", 5, token="t1"),
        row("a", b"old", 7, token="t0"),
    ],
    # A reset: the last record names another token.
    "last record": [TAKES_T0, row("a", b"reset", 1), record(MAIN, branch_record(["t1"]), 2)],
    # A paused holder writes its file last.
    "sequence": [
        record(MAIN, branch_record(["t1"]), 2),
        row("a", b"reset", 1),
        row("b", b"kept", 1, token="t1"),
        TAKES_T0,
    ],
    # The first row of a write met a seal; the second one was acknowledged.
    "id of a token": [
        row("a", b"p", 1, token="t0", number=7),
        row("a", b"p", 1, token="t1", number=7),
        record(MAIN, branch_record(["t1"]), 2),
    ],
    "token of its branch": [TAKES_T0, row("a", b"p", 1, branch="other")],
    "deleted row": [
        record(MAIN, branch_record(["t1", "t0"]), 2),
        row("a", b"", 5, token="t1"),
        row("a", b"below", 1, token="t0"),
    ],
    "deleted record": [record("tags/v1", b"v1", 1), record("tags/v1", b"", 2)],
    "shown branch": [record(MAIN, branch_record(["t0"], pending=True), 1), row("a", b"p", 1)],
}


@pytest.mark.parametrize("guard", GUARDS)
def test_each_rule_is_needed(guard: str) -> None:
    events = NEEDED[guard]
    assert replayed([events]) == replayed([events[::-1]]) == model(events)
    assert model(events, guard) != model(events), f"without it: {GUARDS[guard]}"


def test_a_damaged_record_of_a_branch_is_named_and_the_others_count(tmp_path: Path) -> None:
    """No row of its tokens counts, not even of those that an older record names."""
    other = "branches/other"
    events = [TAKES_T0, record(MAIN, b"\xff\xff", 2), record(other, branch_record(["t0"]), 1)]
    events += [row("a", b"p", 1), row("b", b"q", 2, branch="other")]
    damaged, whole, rows = replay([batch_of(events)], tmp_path)
    assert isinstance(damaged, Record)
    assert (damaged.key, damaged.branch) == (MAIN, None)
    assert MAIN in damaged.problem
    assert isinstance(whole, Record)
    assert (whole.key, whole.problem) == (other, "")
    assert isinstance(rows, StagedRows)
    assert (rows.branch_id, rows.paths.to_pylist()) == ("other", ["b"])


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    (tmp_path / "records").write_text("no folder")
    one = Replay(tmp_path, run_bytes=1)
    one.add(batch_of([TAKES_T0]))
    with pytest.raises(TarnError, match="temporary files") as caught:
        list(one.results())
    one.close()
    assert caught.value.kind is Kind.EXHAUSTED


def test_rows_that_are_written_again_take_little_room(tmp_path: Path) -> None:
    """A million writes of one path are one row on the disk for each run."""
    one = Replay(tmp_path, run_bytes=1 << 20)
    rows = [row("a", b"x" * 500, order) for order in range(2000)]
    for _ in range(20):
        one.add(batch_of(rows))
    one.add(batch_of([TAKES_T0]))
    _, staged = state_of(one.results())
    one.close()
    assert staged == {"main": {"a": b"x" * 500}}
    written = sum(path.stat().st_size for path in (tmp_path / "rows").iterdir())
    assert written < 20 * 2000, "far less than 20 MB of rows"

"""The external sort of references."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tarn.core.entry import TOMBSTONE, Entry, pack
from tarn.fsck import references as module
from tarn.fsck.references import (
    RECORD,
    References,
    SortedReferences,
    path_of_address,
    records_of,
)
from tarn.fsck.state import State, open_state

TIME = (1_700_000_000_000).to_bytes(6, "big")


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path / "state", "test", 0)


def fill(state: State, addresses: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes many small runs of small parts."""
    monkeypatch.setattr(module, "_RUN_RECORDS", 37)
    monkeypatch.setattr(module, "_PART_RECORDS", 5)
    references = References(state, "lake", 1)
    for address in addresses:
        records = np.zeros(1, RECORD)
        records["address"] = address
        references.add(records)
    references.flush()


def addresses_of(references: SortedReferences, upto: str | None) -> list[bytes]:
    return [
        address.ljust(16, b"\0")
        for records in references.upto(upto)
        for address in records["address"].tolist()
    ]


@pytest.mark.parametrize("seed", range(5))
def test_runs_come_out_as_one_in_the_order_of_the_paths(
    state: State, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    # Zeros at the end and few different bytes: a fixed-width string could lose them.
    addresses = [
        TIME + chance.randbytes(1) + bytes(8) + bytes([chance.randrange(3)]) for _ in range(400)
    ]
    fill(state, addresses, monkeypatch)
    expected = sorted(addresses)
    assert addresses_of(SortedReferences(state, "lake", 1), None) == expected
    assert expected == sorted(addresses, key=path_of_address)
    assert addresses_of(SortedReferences(state, "lake", 2), None) == []
    middle = path_of_address(expected[150])
    later = [address for address in expected if path_of_address(address) > middle]
    assert addresses_of(SortedReferences(state, "lake", 1, middle), None) == later
    stream = SortedReferences(state, "lake", 1)
    first = addresses_of(stream, middle)
    assert first == [address for address in expected if path_of_address(address) <= middle]
    assert first + addresses_of(stream, None) == expected
    state.close()


def test_a_foreign_path_bounds_references_too(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [TIME + bytes([number]) + bytes(9) for number in range(20)]
    fill(state, addresses, monkeypatch)
    stream = SortedReferences(state, "lake", 1, "data/")
    assert addresses_of(stream, "data/0") == []
    assert addresses_of(stream, "data/zzz") == addresses
    state.close()


def test_references_of_entries() -> None:
    here = pack(Entry(5, 0, TIME + bytes(10), b"m" * 16))
    again = pack(Entry(5, 0, TIME + bytes(10), b"m" * 16, content_type="x"))
    parts = pack(Entry(7, 0, TIME + bytes(9) + b"\1", b"m" * 16, etag_parts=2))
    elsewhere = pack(Entry(5, 0, bytes(16), bytes(16), external_address="s3://x/y"))
    too_late = pack(Entry(5, 0, b"\xff" * 16, bytes(16)))
    values = pa.array([here, TOMBSTONE, again, parts, elsewhere, too_late], pa.binary())
    records, impossible = records_of(values, 3, with_md5=True)
    assert impossible.tolist() == [5]
    assert records["size"].tolist() == [5, 7]
    assert records["plain"].tolist() == [True, False]
    assert set(records["source"].tolist()) == {3}


def test_an_empty_object_has_a_block_like_any_other() -> None:
    values = pa.array([pack(Entry(0, 0, TIME + bytes(10), bytes(16)))], pa.binary())
    records, impossible = records_of(values, 1, with_md5=False)
    assert (records["size"].tolist(), impossible.tolist()) == ([0], [])

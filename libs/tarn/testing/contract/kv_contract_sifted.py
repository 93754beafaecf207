"""The KV contract, scans without unwanted rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.kv.port import SCAN_LIMIT_MAX, Kv, Partition, PartitionKind, Row, RowFilter
from tarn.testing.contract.kv_fixtures import AWKWARD_KEYS, KvFixtures, numbered, put

__all__ = ["SiftedContract"]

_BEGINS = b"\1\1"
_VALUES = [
    b"",
    b"\1",
    b"\1\0",
    b"\1\0\xff",
    b"\1\1",
    b"\1\1\0",
    b"\1\1\xff\xff",
    b"\1\2",
    b"\2",
    b"\xff",
]


async def _sifted(
    kv: Kv,
    partition: Partition,
    begins: bytes,
    start: bytes = b"",
    end: bytes | None = None,
    limit: int = 1000,
    hidden_by: Sequence[Partition] = (),
) -> list[Row]:
    """Reads a range page by page. Checks that each page makes progress and stays behind `upto`."""
    rows: list[Row] = []
    while True:
        page = await kv.scan_without(partition, start, end, limit, RowFilter(begins, hidden_by))
        assert len(page.rows) <= limit
        rows += page.rows
        if page.upto is None:
            return rows
        assert page.upto >= start
        assert end is None or page.upto < end
        assert all(key <= page.upto for key, _ in page.rows)
        start = page.upto + b"\0"


class SiftedContract(KvFixtures):
    """`scan_without` returns the rows of `scan` whose value begins otherwise."""

    async def test_rows_with_unwanted_values_are_left_out(self, kv: Kv, either: Partition) -> None:
        """All others are returned, also values that are shorter, smaller and greater; for every pair of bounds."""
        rows = [(key, _VALUES[number % len(_VALUES)]) for number, key in enumerate(AWKWARD_KEYS)]
        await put(kv, either, *rows)
        for begins in (_BEGINS, b"\1", b"\1\1\xff\xff", b"\0"):
            wanted = [row for row in rows if not row[1].startswith(begins)]
            assert await _sifted(kv, either, begins) == wanted
            assert await _sifted(kv, either, begins, limit=2) == wanted
        for start in AWKWARD_KEYS[::3]:
            for end in [*AWKWARD_KEYS[::4], None]:
                expected = [
                    row
                    for row in rows
                    if start <= row[0]
                    and (end is None or row[0] < end)
                    and not row[1].startswith(_BEGINS)
                ]
                assert await _sifted(kv, either, _BEGINS, start, end) == expected

    async def test_few_rows_are_found_among_many_unwanted_ones(
        self, kv: Kv, either: Partition
    ) -> None:
        """The last row too; one that is overwritten counts by its new value."""
        rows = [(key, b"\1\1dead") for key, _ in numbered(700)]
        await put(kv, either, *rows)
        alive = [(rows[at][0], b"\1\0alive") for at in (3, 400, 699)]
        await put(kv, either, *alive)
        for limit in (1, 2, 3, 1000):
            assert await _sifted(kv, either, _BEGINS, limit=limit) == alive
        await put(kv, either, (rows[400][0], b"\1\1dead again"))
        assert await _sifted(kv, either, _BEGINS) == [alive[0], alive[2]]

    async def test_a_page_of_a_thousand_among_many(self, kv: Kv, plain: Partition) -> None:
        """By chance, in runs and alone."""
        rng = random.Random(5)  # noqa: S311 - a repeatable choice, not a secret
        rows = [
            (key, rng.choice((b"\1\0x", b"\1\1")) if at % 900 < 600 else b"\1\1")
            for at, (key, _) in enumerate(numbered(3000))
        ]
        await put(kv, plain, *rows)
        wanted = [row for row in rows if row[1] != b"\1\1"]
        assert await _sifted(kv, plain, _BEGINS) == wanted
        assert await _sifted(kv, plain, _BEGINS, limit=250) == wanted

    async def test_rows_of_other_partitions_hide_those_of_their_keys(
        self, kv: Kv, either: Partition
    ) -> None:
        """Whatever their values; partitions of both kinds, a part of a range, small pages, and an absent partition."""
        kinds = (*PartitionKind, either.kind)
        above = [
            replace(either, name=f"{either.name}-{at}", kind=kind) for at, kind in enumerate(kinds)
        ]
        rows = [
            (key, b"\1\1" if at % 5 == 0 else b"\1\0") for at, (key, _) in enumerate(numbered(400))
        ]
        await put(kv, either, *rows)
        # The front of the range is hidden as a whole, and of the rest some rows.
        hiding = [[*rows[:150], *rows[150::7]], [(rows[151][0], b""), *rows[160::11]]]
        for partition, held in zip(above, hiding, strict=False):
            await put(kv, partition, *held)
        for count in range(4):
            hidden = {key for held in hiding[:count] for key, _ in held}
            wanted = [row for row in rows if row[1] == b"\1\0" and row[0] not in hidden]
            for limit in (3, 1000):
                found = await _sifted(kv, either, _BEGINS, limit=limit, hidden_by=above[:count])
                assert found == wanted
            start, end = rows[140][0], rows[200][0]
            found = await _sifted(kv, either, _BEGINS, start, end, hidden_by=above[:count])
            assert found == [row for row in wanted if start <= row[0] < end]

    async def test_absent_partitions_and_odd_arguments(self, kv: Kv, either: Partition) -> None:
        """A partition that was never written is empty. A beginning that no value is greater than is refused."""
        page = await kv.scan_without(either, b"", None, 10, RowFilter(_BEGINS))
        assert (page.rows, page.upto) == ([], None)
        await put(kv, either, (b"k", b"v"))
        page = await kv.scan_without(either, b"z", b"a", 10, RowFilter(_BEGINS))
        assert (page.rows, page.upto) == ([], None)
        for begins in (b"", b"\xff", b"\xff\xff"):
            with pytest.raises(TarnError) as raised:
                await kv.scan_without(either, b"", None, 10, RowFilter(begins))
            assert raised.value.kind is Kind.INVALID
        for limit in (0, SCAN_LIMIT_MAX + 1):
            with pytest.raises(TarnError) as raised:
                await kv.scan_without(either, b"", None, limit, RowFilter(_BEGINS))
            assert raised.value.kind is Kind.INVALID

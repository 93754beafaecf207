"""The KV contract, rows: values, order, groups, pages and bulk scans."""

from __future__ import annotations

import asyncio
import random

from tarn.core.errors import Kind
from tarn.kv.paging import pages_of
from tarn.kv.port import (
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    Group,
    Kv,
    Partition,
    PartitionKind,
    Row,
)
from tarn.testing.contract.kv_fixtures import (
    AWKWARD_KEYS,
    KvFixtures,
    arrow_rows,
    get,
    group,
    numbered,
    put,
    scan_all,
)

__all__ = ["RowsContract"]


class RowsContract(KvFixtures):
    """Written rows are read in byte order; groups are atomic."""

    # Values and order

    async def test_partition_that_was_never_written_is_empty(
        self, kv: Kv, either: Partition
    ) -> None:
        """Reading, deleting and dropping it are not errors."""
        assert await kv.get_many(either, [b"a", b"b"]) == [None, None]
        assert await kv.get_many(either, []) == []
        assert await kv.scan(either, b"", None, 10) == []
        assert await arrow_rows(kv, either) == []
        await kv.delete_many(either, [b"a"])
        await kv.drop_partition(either)

    async def test_values_come_back_in_the_order_of_the_keys(
        self, kv: Kv, either: Partition
    ) -> None:
        """Absent keys return None in their place; repeated keys return repeated values."""
        await put(kv, either, (b"a", b"1"), (b"b", b""), (b"c", bytes(range(256))))
        found = await kv.get_many(either, [b"c", b"x", b"a", b"b", b"a"])
        assert [None if v is None else v.value for v in found] == [
            bytes(range(256)),
            None,
            b"1",
            b"",
            b"1",
        ]

    async def test_hundreds_of_keys_are_read_at_once(self, kv: Kv, either: Partition) -> None:
        """More keys than any driver sends in one request."""
        rows = numbered(700)
        await put(kv, either, *rows)
        keys = [key for key, _ in reversed(rows)]
        found = await kv.get_many(either, keys)
        assert [v.value for v in found if v] == [value for _, value in reversed(rows)]

    async def test_keys_are_in_byte_order(self, kv: Kv, either: Partition) -> None:
        """Zero bytes, 0xff and UTF-8 beyond the basic plane sort as bytes."""
        shuffled = AWKWARD_KEYS.copy()
        random.Random(7).shuffle(shuffled)  # noqa: S311 - a repeatable order, not a secret
        await put(kv, either, *((key, b"v" + key) for key in shuffled))
        expected = [(key, b"v" + key) for key in AWKWARD_KEYS]
        assert await kv.scan(either, b"", None, 100) == expected
        assert await arrow_rows(kv, either) == expected
        assert [v and v.value for v in await kv.get_many(either, AWKWARD_KEYS)] == [
            b"v" + key for key in AWKWARD_KEYS
        ]

    async def test_scan_range_includes_start_and_excludes_end(
        self, kv: Kv, either: Partition
    ) -> None:
        """For every pair of bounds among awkward keys; reversed bounds give nothing."""
        await put(kv, either, *((key, b"") for key in AWKWARD_KEYS))
        for start in AWKWARD_KEYS:
            for end in [*AWKWARD_KEYS, None]:
                expected = [
                    (key, b"") for key in AWKWARD_KEYS if key >= start and (not end or key < end)
                ]
                assert await kv.scan(either, start, end, 100) == expected
        assert await arrow_rows(kv, either, b"a", b"aa") == [
            (key, b"") for key in (b"a", b"a\x00", b"a\x00b", b"a/", b"a0")
        ]
        assert await arrow_rows(kv, either, b"b", b"a") == []

    async def test_long_utf8_keys_keep_every_byte(self, kv: Kv, either: Partition) -> None:
        """1,024 bytes, S3's longest key, and neighbours that differ in the last one."""
        stem = ("データ/" * 200).encode()[:1022]
        keys = [stem + b"\x41", stem + b"\x41\x00", stem + b"\x42", stem + b"\xff\xff"]
        await put(kv, either, *((key, key[-2:]) for key in reversed(keys)))
        assert await kv.scan(either, stem, None, 10) == [(key, key[-2:]) for key in keys]

    async def test_partitions_do_not_see_each_other(
        self, kv: Kv, plain: Partition, register: Partition
    ) -> None:
        """The same key in both kinds, and in a name that is a prefix of another name."""
        longer = Partition(plain.name + "/x", PartitionKind.PLAIN)
        await put(kv, plain, (b"k", b"plain"))
        await put(kv, register, (b"k", b"register"))
        await put(kv, longer, (b"k", b"longer"), (b"l", b"only here"))
        assert [await get(kv, p, b"k") for p in (plain, register, longer)] == [
            b"plain",
            b"register",
            b"longer",
        ]
        assert await scan_all(kv, plain) == [(b"k", b"plain")]

    async def test_last_write_of_a_key_wins(self, kv: Kv, either: Partition) -> None:
        """Over several calls of one task."""
        for number in range(20):
            await put(kv, either, (b"k", b"%d" % number))
            assert await get(kv, either, b"k") == b"%d" % number
        assert await scan_all(kv, either) == [(b"k", b"19")]

    # Groups

    async def test_groups_land_whole_and_succeed_one_by_one(
        self, kv: Kv, either: Partition
    ) -> None:
        """A group over a limit fails alone, with all of its rows."""
        outcomes = await kv.set_many(
            either,
            [
                group((b"a", b"1"), (b"event/1", b"")),
                group((b"b", b"2"), (b"b/too long" + bytes(KEY_BYTES_MAX), b"")),
                group((b"c", b"3"), (b"event/3", b"")),
                Group(b"d", ()),
            ],
        )
        assert [o and o.kind for o in outcomes] == [None, Kind.INVALID, None, Kind.INVALID]
        assert await scan_all(kv, either) == [
            (b"a", b"1"),
            (b"c", b"3"),
            (b"event/1", b""),
            (b"event/3", b""),
        ]

    async def test_rows_beside_their_anchor_are_found_by_scans(
        self, kv: Kv, either: Partition
    ) -> None:
        """In a partition of several buckets they are in the anchor's bucket, where a lookup by key does not
        search.
        """
        spread = Partition(f"{either.name}/spread", either.kind, buckets=4)
        for number in range(8):
            row, note = b"row/%d" % number, b"note/%d" % number
            assert await kv.set_many(spread, [group((row, b"1"), (note, b""))]) == [None]
            assert await get(kv, spread, row) == b"1"
            assert await kv.scan(spread, note, note + b"\0", 1) == [(note, b"")]

    async def test_no_groups_are_no_outcomes(self, kv: Kv, either: Partition) -> None:
        """An empty call is allowed."""
        assert await kv.set_many(either, []) == []

    async def test_readers_see_a_group_whole_or_not_at_all(self, kv: Kv, plain: Partition) -> None:
        """A page read while a writer rewrites a group of rows shows one generation of it."""
        keys = [b"row/%d" % n for n in range(20)]

        async def write() -> None:
            for generation in range(30):
                rows = tuple((key, b"%d" % generation) for key in keys)
                assert await kv.set_many(plain, [Group(keys[0], rows)]) == [None]

        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(write())
            while not writer.done():
                values = {value for _, value in await kv.scan(plain, b"", None, 100)}
                assert len(values) <= 1
                await asyncio.sleep(0)

    async def test_concurrent_groups_all_land(self, kv: Kv, either: Partition) -> None:
        """Many concurrent tasks: each acknowledged row exists, and its own task reads it."""

        async def write(task: int) -> None:
            for number in range(10):
                row = (b"%03d/%03d" % (task, number), b"%d" % number)
                await put(kv, either, row)
                assert await get(kv, either, row[0]) == row[1]

        async with asyncio.TaskGroup() as tasks:
            for task in range(50):
                tasks.create_task(write(task))
        assert len(await scan_all(kv, either)) == 500

    # Paging and bulk

    async def test_pages_join_without_gap_or_repeat(self, kv: Kv, either: Partition) -> None:
        """For page sizes around the number of rows; a short page is the last one."""
        rows = numbered(50)
        await put(kv, either, *rows)
        for limit in (1, 7, 49, 50, 51):
            assert await scan_all(kv, either, limit) == rows
        assert await kv.scan(either, rows[10][0], rows[20][0], 5) == rows[10:15]

    async def test_paging_while_others_write_keeps_what_was_there(
        self, kv: Kv, plain: Partition
    ) -> None:
        """Rows that existed before the listing are in it exactly once, and in order."""
        rows = numbered(400)
        await put(kv, plain, *rows)
        stop = False

        async def write() -> None:
            number = 0
            while not stop:
                number += 1
                await put(kv, plain, (b"key/%08d/new" % (number * 7919 % 400), b"new"))
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write())
            for _ in range(5):
                seen: list[Row] = []
                async for page in pages_of(kv, plain, b"", None, 30):
                    seen += page
                    await asyncio.sleep(0)
                assert [row for row in seen if row[1] != b"new"] == rows
                assert [key for key, _ in seen] == sorted({key for key, _ in seen})
            stop = True

    async def test_scan_arrow_equals_scan(self, kv: Kv, either: Partition) -> None:
        """Over several batches, with and without bounds."""
        rows = numbered(40_000)
        for at in range(0, len(rows), 5_000):
            await put(kv, either, *rows[at : at + 5_000], repeats=self.put_repeats)
        assert await arrow_rows(kv, either) == rows
        assert await scan_all(kv, either) == rows
        assert await arrow_rows(kv, either, rows[5][0], rows[30_000][0]) == rows[5:30_000]

    async def test_scan_arrow_of_large_values_comes_in_parts(
        self, kv: Kv, plain: Partition
    ) -> None:
        """Batches are also bounded by bytes: 40 MiB are never one batch."""
        rows = [(b"%02d" % n, bytes([n]) * VALUE_BYTES_MAX) for n in range(40)]
        for row in rows:
            await put(kv, plain, row)
        sizes = []
        found: list[Row] = []
        async for batch in kv.scan_arrow(plain, b"", None):
            sizes.append(batch.nbytes)
            keys, values = (column.to_pylist() for column in batch.columns)
            found += zip(keys, values, strict=True)
        assert found == rows
        assert max(sizes) <= 24 << 20

    async def test_scan_arrow_may_be_left_early(self, kv: Kv, plain: Partition) -> None:
        """The store stays usable, and can be closed."""
        await put(kv, plain, *numbered(100))
        async for batch in kv.scan_arrow(plain, b"", None):
            assert batch.num_rows
            break
        await put(kv, plain, (b"after", b""))
        assert await get(kv, plain, b"after") == b""

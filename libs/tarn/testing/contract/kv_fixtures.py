"""Shared by the parts of the KV contract: partitions that no other test uses, and short forms of calls."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from tarn.core.errors import Kind
from tarn.kv.paging import rows_of
from tarn.kv.port import (
    SCAN_LIMIT_MAX,
    Group,
    Kv,
    Partition,
    PartitionKind,
    Predicate,
    PredicateFailedError,
    Row,
)

__all__ = [
    "AWKWARD_KEYS",
    "KvFixtures",
    "arrow_rows",
    "get",
    "group",
    "increment",
    "numbered",
    "predicate_of",
    "put",
    "scan_all",
]

AWKWARD_KEYS = [
    b"\x00",
    b"\x00\x00",
    b"\x00\xff",
    b"a",
    b"a\x00",
    b"a\x00b",
    b"a/",
    b"a0",
    b"aa",
    "ä".encode(),
    "\ue000".encode(),
    "\U0001f333".encode(),  # after U+E000 as bytes, before it as UTF-16
    b"\xfe\xff",
    b"\xff",
    b"\xff\x00",
    b"\xff\xff",
]
"""In byte order."""


def group(*rows: Row) -> Group:
    """Returns a group anchored by its first row."""
    return Group(rows[0][0], rows)


def numbered(count: int, size_bytes: int = 8) -> list[Row]:
    """Returns rows with ascending keys."""
    return [(b"key/%08d" % n, b"%0*d" % (size_bytes, n)) for n in range(count)]


async def put(kv: Kv, partition: Partition, *rows: Row, repeats: int = 0) -> None:
    """Sets rows, each in a group of its own; all must succeed.

    Args:
        kv: the store.
        partition: partition to write to.
        rows: rows to write.
        repeats: how often to repeat groups with an unknown outcome and groups that were not written. Use
            it only if no other writer writes these rows. Servers without processor time give such
            answers, and the port allows them (Cassandra ends a compare-and-set after 1.8 s).
    """
    left = [group(row) for row in rows]
    for repeat in range(repeats + 1):
        outcomes = await kv.set_many(partition, left)
        failed = [
            (one, error) for one, error in zip(left, outcomes, strict=True) if error is not None
        ]
        if not failed:
            return
        told = Counter(repr(error) for _, error in failed).most_common(3)
        allowed = (Kind.UNKNOWN_OUTCOME, Kind.UNAVAILABLE)
        may_repeat = repeat < repeats and all(error.kind in allowed for _, error in failed)
        assert may_repeat, f"{len(failed)} of {len(left)} groups failed: {told}"
        left = [one for one, _ in failed]


async def get(kv: Kv, partition: Partition, key: bytes) -> bytes | None:
    """Returns the value of one key."""
    (found,) = await kv.get_many(partition, [key])
    return None if found is None else found.value


async def predicate_of(kv: Kv, partition: Partition, key: bytes) -> Predicate:
    """Returns the version of an existing key."""
    (found,) = await kv.get_many(partition, [key])
    assert found is not None
    return found.predicate


async def scan_all(kv: Kv, partition: Partition, limit: int = SCAN_LIMIT_MAX) -> list[Row]:
    """Returns all rows, read page by page."""
    return [row async for row in rows_of(kv, partition, b"", None, limit)]


async def arrow_rows(
    kv: Kv, partition: Partition, start: bytes = b"", end: bytes | None = None
) -> list[Row]:
    """Returns the rows of `scan_arrow`; checks the form of its batches."""
    rows: list[Row] = []
    async for batch in kv.scan_arrow(partition, start, end):
        assert batch.schema.names == ["key", "value"]
        assert batch.schema.types == [pa.binary(), pa.binary()]
        assert 0 < batch.num_rows <= 65_536
        keys, values = (column.to_pylist() for column in batch.columns)
        rows += zip(keys, values, strict=True)
    return rows


async def increment(kv: Kv, partition: Partition, key: bytes) -> None:
    """Adds one to a counter by compare-and-set; repeats until it succeeds."""
    while True:
        (found,) = await kv.get_many(partition, [key])
        value = b"%d" % (int(found.value) + 1 if found else 1)
        try:
            await kv.set_if(partition, key, value, found.predicate if found else None)
        except PredicateFailedError:
            continue
        return


class KvFixtures:
    """Fixtures; a driver's test class overrides `kv`."""

    installation = "contract"
    put_repeats = 0
    """For stores whose servers may run out of processor time: see `put`."""

    @pytest.fixture
    async def kv(self) -> Kv:
        """The store under test; its fixture closes it."""
        raise NotImplementedError

    @pytest.fixture
    def plain(self, request: pytest.FixtureRequest) -> Partition:
        """A plain partition that no other test uses."""
        return Partition(f"{self.installation}/{request.node.name}/plain", PartitionKind.PLAIN)

    @pytest.fixture
    def register(self, request: pytest.FixtureRequest) -> Partition:
        """A register partition that no other test uses."""
        name = f"{self.installation}/{request.node.name}/register"
        return Partition(name, PartitionKind.REGISTER)

    @pytest.fixture(params=["plain", "register"])
    def either(self, request: pytest.FixtureRequest) -> Partition:
        """A partition that no other test uses; the test runs once with each kind."""
        found = request.getfixturevalue(request.param)
        assert isinstance(found, Partition)
        return found

"""Groups of a `set_many`: checked, and brought to their buckets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.cassandra.partitions.buckets import bucket_of
from tarn.kv.cassandra.rows.registers import RegisterSet
from tarn.kv.cassandra.rows.request_batches import CassandraPartition
from tarn.kv.cassandra.settings import CassandraLimits
from tarn.kv.limits import check_group
from tarn.kv.port import Group, Row

__all__ = ["PlacedGroup", "keys_by_bucket", "pack_sets", "place_groups", "steps"]

_STEP_ROWS = 2_000
_STEP_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """A group that may be stored.

    Attributes:
        index: its number in the call.
        rows: without repeated keys; of those the last stays.
    """

    index: int
    bucket: int
    rows: tuple[Row, ...]
    size_bytes: int


def place_groups(
    groups: Sequence[Group], buckets: int, limits: CassandraLimits, outcomes: list[TarnError | None]
) -> list[PlacedGroup]:
    """The groups that may be stored; why the others may not goes to their `outcomes`."""
    placed = []
    for index, group in enumerate(groups):
        try:
            size_bytes = check_group(group)
            if size_bytes > limits.group_bytes_max:
                text = f"a group of {size_bytes} bytes is larger than {limits.group_bytes_max}"
                raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        except TarnError as error:
            outcomes[index] = error
            continue
        rows = group.rows if len(group.rows) == 1 else tuple(dict(group.rows).items())
        placed.append(PlacedGroup(index, bucket_of(group.anchor, buckets), rows, size_bytes))
    return placed


def steps(groups: Iterable[PlacedGroup]) -> Iterator[list[PlacedGroup]]:
    """Parts of a large call, written one after the other: others get their turn, and memory is bounded."""
    part: list[PlacedGroup] = []
    rows = size_bytes = 0
    for group in groups:
        rows += len(group.rows)
        size_bytes += group.size_bytes
        if part and (rows > _STEP_ROWS or size_bytes > _STEP_BYTES):
            yield part
            part, rows, size_bytes = [], len(group.rows), group.size_bytes
        part.append(group)
    if part:
        yield part


def pack_sets(
    groups: Iterable[PlacedGroup], p: bytes, limits: CassandraLimits
) -> Iterator[tuple[RegisterSet, list[int]]]:
    """Sets of whole groups of one bucket, with the numbers of their groups; in a set no key twice."""
    open_sets: dict[int, _OpenSet] = {}
    for group in groups:
        found = open_sets.get(group.bucket)
        if found is None or not found.takes(group, limits):
            if found is not None:
                yield found.close(CassandraPartition(p, group.bucket))
            found = open_sets[group.bucket] = _OpenSet()
        found.add(group)
    for bucket, found in open_sets.items():
        yield found.close(CassandraPartition(p, bucket))


class _OpenSet:
    """A set that still takes groups."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._size_bytes = 0
        self._indexes: list[int] = []

    def takes(self, group: PlacedGroup, limits: CassandraLimits) -> bool:
        return (
            len(self._rows) + len(group.rows) <= limits.batch_rows_max
            and self._size_bytes + group.size_bytes <= limits.batch_bytes_max
            and not any(key in self._rows for key, _ in group.rows)
        )

    def add(self, group: PlacedGroup) -> None:
        self._rows.update(group.rows)
        self._size_bytes += group.size_bytes
        self._indexes.append(group.index)

    def close(self, place: CassandraPartition) -> tuple[RegisterSet, list[int]]:
        rows = tuple(self._rows.items())
        return RegisterSet(place, rows, self._size_bytes), self._indexes


def keys_by_bucket(keys: Iterable[bytes], buckets: int) -> dict[int, list[bytes]]:
    """Keys by the bucket that they are anchors of."""
    if buckets == 1:
        return {0: list(keys)}
    found: dict[int, list[bytes]] = {}
    for key in keys:
        found.setdefault(bucket_of(key, buckets), []).append(key)
    return found

"""The groups of a `set_many`: checked, and assigned to their buckets."""

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
    """A group that passed the checks.

    Attributes:
        index: position of the group in the call, from 0.
        rows: without repeated keys; the last row of a key remains.
        companions: the same, of the companions. No row has their keys.
    """

    index: int
    bucket: int
    rows: tuple[Row, ...]
    companions: tuple[Row, ...]
    size_bytes: int

    @property
    def all_rows(self) -> tuple[Row, ...]:
        """The rows and the companions."""
        return (*self.rows, *self.companions) if self.companions else self.rows


def place_groups(
    groups: Sequence[Group], buckets: int, limits: CassandraLimits, outcomes: list[TarnError | None]
) -> list[PlacedGroup]:
    """Returns the groups that may be stored; writes the errors of the others to `outcomes`."""
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
        companions = tuple(dict(group.companions).items()) if group.companions else ()
        bucket = bucket_of(group.anchor, buckets)
        placed.append(PlacedGroup(index, bucket, rows, companions, size_bytes))
    return placed


def steps(groups: Iterable[PlacedGroup]) -> Iterator[list[PlacedGroup]]:
    """Splits a large call into steps that run one after the other, to bound memory and let others run."""
    part: list[PlacedGroup] = []
    rows = size_bytes = 0
    for group in groups:
        count = len(group.rows) + len(group.companions)
        rows += count
        size_bytes += group.size_bytes
        if part and (rows > _STEP_ROWS or size_bytes > _STEP_BYTES):
            yield part
            part, rows, size_bytes = [], count, group.size_bytes
        part.append(group)
    if part:
        yield part


def pack_sets(
    groups: Iterable[PlacedGroup], p: bytes, limits: CassandraLimits
) -> Iterator[tuple[RegisterSet, list[int]]]:
    """Packs whole groups of one bucket into sets, each with the indexes of its groups. Per set, a key
    occurs once at most."""
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
    """A set to which groups can still be added."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._size_bytes = 0
        self._indexes: list[int] = []

    def takes(self, group: PlacedGroup, limits: CassandraLimits) -> bool:
        return (
            len(self._rows) + len(group.all_rows) <= limits.batch_rows_max
            and self._size_bytes + group.size_bytes <= limits.batch_bytes_max
            and not any(key in self._rows for key, _ in group.all_rows)
        )

    def add(self, group: PlacedGroup) -> None:
        self._rows.update(group.all_rows)
        self._size_bytes += group.size_bytes
        self._indexes.append(group.index)

    def close(self, place: CassandraPartition) -> tuple[RegisterSet, list[int]]:
        rows = tuple(self._rows.items())
        return RegisterSet(place, rows, self._size_bytes), self._indexes


def keys_by_bucket(keys: Iterable[bytes], buckets: int) -> dict[int, list[bytes]]:
    """Groups keys by the bucket in which they would be anchors."""
    if buckets == 1:
        return {0: list(keys)}
    found: dict[int, list[bytes]] = {}
    for key in keys:
        found.setdefault(bucket_of(key, buckets), []).append(key)
    return found

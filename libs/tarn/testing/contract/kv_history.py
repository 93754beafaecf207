"""Random histories that compare a store with dicts."""

from __future__ import annotations

import random

import pytest

from tarn.kv.port import (
    Group,
    Kv,
    Partition,
    PartitionKind,
    Predicate,
    PredicateFailedError,
)
from tarn.testing.contract.kv_fixtures import (
    AWKWARD_KEYS,
    predicate_of,
    scan_all,
)

__all__ = ["RandomHistory"]


class RandomHistory:
    """Applies random operations to a store and to dicts, and compares them after each.

    The model does not read the store: it uses only predicates that earlier operations returned.
    """

    def __init__(self, kv: Kv, partitions: list[Partition], seed: int) -> None:
        self._kv = kv
        self._random = random.Random(seed)  # noqa: S311 - a repeatable history, not a secret
        self._rows: dict[Partition, dict[bytes, bytes]] = {p: {} for p in partitions}
        self._versions: dict[bytes, Predicate] = {}
        self._keys = AWKWARD_KEYS[:8]

    async def run(self, steps: int) -> None:
        """Performs `steps` operations."""
        for _ in range(steps):
            partition = self._random.choice(list(self._rows))
            operations = [self._set_groups, self._delete, self._scan]
            if partition.kind is PartitionKind.REGISTER:
                operations += [self._set_if, self._set_if, self._delete_if]
            if self._random.random() < 0.03:
                operations = [self._drop]
            await self._random.choice(operations)(partition)
            assert await scan_all(self._kv, partition) == sorted(self._rows[partition].items())

    def _key(self) -> bytes:
        return self._random.choice(self._keys)

    def _value(self) -> bytes:
        return self._random.randbytes(self._random.choice((0, 1, 30, 5000)))

    async def _set_groups(self, partition: Partition) -> None:
        groups: list[Group] = []
        for _ in range(self._random.randint(1, 4)):
            # Groups of one call may be applied in any order, so no key occurs twice in it.
            keys = self._random.sample(self._keys, self._random.randint(1, 2))
            used = {key for other in groups for key, _ in other.rows}
            if rows := tuple((key, self._value()) for key in keys if key not in used):
                groups.append(Group(rows[0][0], rows))
        assert not any(await self._kv.set_many(partition, groups))
        for key, value in (row for written in groups for row in written.rows):
            self._rows[partition][key] = value
            if partition.kind is PartitionKind.REGISTER:
                self._versions[key] = await predicate_of(self._kv, partition, key)

    async def _delete(self, partition: Partition) -> None:
        keys = [self._key(), self._key()]
        await self._kv.delete_many(partition, keys)
        for key in keys:
            self._rows[partition].pop(key, None)

    async def _set_if(self, partition: Partition) -> None:
        key, value = self._key(), self._value()
        exists = key in self._rows[partition]
        predicate = self._random.choice((None, self._versions.get(key)))
        if exists is (predicate is not None):
            self._versions[key] = await self._kv.set_if(partition, key, value, predicate)
            self._rows[partition][key] = value
            return
        with pytest.raises(PredicateFailedError) as caught:
            await self._kv.set_if(partition, key, value, predicate)
        current = caught.value.current
        assert (current and current.value) == self._rows[partition].get(key)

    async def _delete_if(self, partition: Partition) -> None:
        key = self._key()
        if key in self._rows[partition]:
            await self._kv.delete_if(partition, key, self._versions[key])
            del self._rows[partition][key]
            return
        with pytest.raises(PredicateFailedError):
            await self._kv.delete_if(partition, key, self._versions.get(key, Predicate(b"none")))

    async def _scan(self, partition: Partition) -> None:
        start, end, limit = self._key(), self._key(), self._random.randint(1, 5)
        rows = sorted(self._rows[partition].items())
        expected = [row for row in rows if start <= row[0] < end]
        assert await self._kv.scan(partition, start, end, limit) == expected[:limit]

    async def _drop(self, partition: Partition) -> None:
        await self._kv.drop_partition(partition)
        self._rows[partition].clear()

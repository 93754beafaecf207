"""The rows of auth: one partition of registers (`tarn.kv.register`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tarn.kv.port import Kv, Partition, Row, Versioned
from tarn.kv.register import Register, write_once

__all__ = ["Registers"]

T = TypeVar("T")


class Registers:
    """The rows of one register partition."""

    def __init__(self, kv: Kv, partition: Partition) -> None:
        self._kv = kv
        self._partition = partition

    def register(
        self,
        key: bytes,
        decode: Callable[[bytes | None], T],
        encode: Callable[[T], bytes | None],
        what: str,
    ) -> Register[T]:
        """One row, to be changed as often as others change it meanwhile."""
        return Register(self._kv, self._partition, key, decode, encode, what)

    def record(
        self, key: bytes, decode: Callable[[bytes], T], encode: Callable[[T], bytes], what: str
    ) -> Register[T | None]:
        """As `register`, for a record that is None if there is no row."""
        return self.register(
            key,
            lambda value: None if value is None else decode(value),
            lambda record: None if record is None else encode(record),
            what,
        )

    async def get(self, key: bytes) -> Versioned | None:
        """Returns a row, None if it is absent."""
        return (await self._kv.get_many(self._partition, [key]))[0]

    async def get_many(self, keys: list[bytes]) -> list[Versioned | None]:
        """Returns rows in the order of the keys."""
        return await self._kv.get_many(self._partition, keys)

    async def page(self, start: bytes, end: bytes, limit: int) -> list[Row]:
        """Returns up to `limit` rows with `start <= key < end`."""
        return await self._kv.scan(self._partition, start, end, limit)

    async def insert(self, key: bytes, value: bytes) -> bytes:
        """Writes a row unless it exists; returns the value that is stored, as `write_once`.

        Raises:
            OutcomeUnknownError: it may be written, now or later.
        """
        return await write_once(self._kv, self._partition, key, lambda: value, f"the row {key!r}")

    async def drop(self, keys: list[bytes]) -> None:
        """Removes rows regardless of their values."""
        if keys:
            await self._kv.delete_many(self._partition, keys)

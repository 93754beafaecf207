"""Registers: rows that change by compare-and-set only. One policy of tries, and one treatment of lost answers.

Branch records have a change of their own (`tarn_graveler.records.branches`): many requests change them beside each
other, so the operation ids in the record decide what became of an attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import Kv, OutcomeUnknownError, Partition, PredicateFailedError

__all__ = ["REGISTER_TRIES", "Register", "require_written", "unknown_if", "write_once"]

T = TypeVar("T")

REGISTER_TRIES: Final = 16
"""Attempts of one change. Each one that fails has lost to a change of another writer, or lost its answer."""


class unknown_if:  # noqa: N801 - a context manager, and cheaper than a function that yields
    """Turns an error into OUTCOME_UNKNOWN if something of the operation is, or may be, already written.

    Such an error must not look like a refusal: a refusal of the *next* attempt says nothing about the row of this one.
    """

    __slots__ = ("_written",)

    def __init__(self, written: bool) -> None:
        self._written = written

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._written and isinstance(error, TarnError):
            if isinstance(error, OutcomeUnknownError):
                return
            raise OutcomeUnknownError(f"the row was written, but then: {error.message}") from error


class Register(Generic[T]):
    """One row of a store.

    Args:
        kv: the store.
        partition: a register partition.
        key: of the row.
        decode: the record of a value; of None if there is no row.
        encode: the value of a record; None if there shall be no row.
        what: the record, for errors: "the settings of repository lake".
    """

    def __init__(
        self,
        kv: Kv,
        partition: Partition,
        key: bytes,
        decode: Callable[[bytes | None], T],
        encode: Callable[[T], bytes | None],
        what: str,
    ) -> None:
        self._kv = kv
        self._partition = partition
        self._key = key
        self._decode = decode
        self._encode = encode
        self._what = what

    async def read(self, *, settle: bool = False) -> T:
        """Returns the record, by a read that is sent now; `settle` as in `Kv.get_many`.

        Raises:
            TarnError: as `decode`; errors of the store.
        """
        (found,) = await self._kv.get_many(self._partition, [self._key], settle=settle)
        return self._decode(None if found is None else found.value)

    async def change(self, decide: Callable[[T], T], holds: Callable[[T], bool] | None = None) -> T:
        """Changes the record; returns one that holds.

        1. A settling read: no earlier write of this process can still land after it.
        2. After a lost answer: a record that holds is returned. This finds the change that was made, also beneath
           later changes of others.
        3. `decide` makes the next record. If it is the same one, nothing is written.
        4. A compare-and-set. A newer record, or a lost answer, begins again with 1.

        Args:
            decide: returns the next record, or raises a refusal. Called for each attempt.
            holds: whether a record shows that an attempt was made; true for each new record of `decide`. Asked after a
                lost answer only. Without it, `decide` must return its own result unchanged, because it meets it then.

        Raises:
            TarnError: as `decide`, `decode` and `encode`, unless an attempt may be written; UNAVAILABLE,
                TOO_MANY_RETRIES: surely nothing is written.
            OutcomeUnknownError: an attempt may be written, now or later.
        """
        may_be_written = False
        for _ in range(REGISTER_TRIES):
            with unknown_if(may_be_written):
                (found,) = await self._kv.get_many(self._partition, [self._key], settle=True)
                before = self._decode(None if found is None else found.value)
                if may_be_written and holds is not None and holds(before):
                    return before
                after = decide(before)
                if after == before:
                    return before
                assert holds is None or holds(after), f"{self._what}: the decision does not hold"
                value = self._encode(after)
                try:
                    if value is not None:
                        expected = None if found is None else found.predicate
                        await self._kv.set_if(self._partition, self._key, value, expected)
                    elif found is not None:
                        await self._kv.delete_if(self._partition, self._key, found.predicate)
                except PredicateFailedError:
                    continue
                except OutcomeUnknownError:
                    may_be_written = True
                    continue
            return after
        text = f"{self._what} changed {REGISTER_TRIES} times during one change; try again"
        with unknown_if(may_be_written):
            raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)


async def write_once(
    kv: Kv, partition: Partition, key: bytes, make: Callable[[], bytes], what: str
) -> bytes:
    """Writes a row that never changes, unless it is there; returns its value, that of the first writer.

    Args:
        kv: the store.
        partition: a register partition.
        key: of the row.
        make: returns the value; called for each attempt.
        what: the row, for errors.

    Raises:
        TarnError, OutcomeUnknownError: as `Register.change`.
    """
    row = Register[bytes | None](kv, partition, key, lambda value: value, lambda value: value, what)
    stored = await row.change(lambda found: make() if found is None else found)
    assert stored is not None, "it was there, or was written"
    return stored


def require_written(outcomes: Iterable[TarnError | None]) -> None:
    """Does nothing if each group was written.

    Args:
        outcomes: as `Kv.set_many` returns them.

    Raises:
        TarnError: the first error among them.
    """
    for failed in outcomes:
        if failed is not None:
            raise failed

"""Attempts whose outcome may be unknown, and what settles them (rule 8).

Branch records: `Attempts`, with `tarn.core.branch.settle`, for `Branches.compare_and_set`. Staged rows: `set_settled`.
All other records: `tarn.kv.register.Register`, and for a single attempt `tarn_auth.registers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tarn.core.branch import Branch, Settled, settle
from tarn.core.errors import TarnError
from tarn.kv.port import (
    Kv,
    OutcomeUnknownError,
    Partition,
    Predicate,
    PredicateFailedError,
    Row,
)
from tarn.kv.register import unknown_if

__all__ = ["TRIES", "Attempts", "set_settled"]

TRIES = 8
"""Attempts of one write; an attempt fails only if a commit or compaction sealed its token."""


async def set_settled(
    kv: Kv,
    partition: Partition,
    key: bytes,
    value: bytes,
    predicate: Predicate | None,
    companions: Sequence[Row] = (),
) -> None:
    """Compares and sets a staged row with its companions; if the outcome is unknown, a settling read decides.

    Raises:
        PredicateFailedError: the row was not set; the error carries the existing row.
        OutcomeUnknownError: the row may be set, now or later, although the settling read does not show
            it.
        TarnError: the row was not set.
    """
    try:
        await kv.set_if(partition, key, value, predicate, companions=companions)
    except OutcomeUnknownError:
        with unknown_if(True):
            (found,) = await kv.get_many(partition, [key], settle=True)
        if found is None or found.value != value:
            raise


class Attempts:
    """The attempts of one change of a branch record whose answers were lost (rule 8).

    An attempt is *pending* while the record is still the one that it expects: it was not applied, but its
    request may wait in a queue and be applied at any time, even after a settling read. It is decided as
    soon as the record has changed. Until then, no failure of a later step may claim that nothing was
    done.
    """

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: list[tuple[Branch, Branch]] = []

    @property
    def is_pending(self) -> bool:
        """Whether an attempt may still be applied, or may have been applied without a trace."""
        return bool(self._pending)

    def add(self, base: Branch, after: Branch) -> None:
        """Adds an attempt whose answer was lost: the record that it expects, and the one that it writes."""
        self._pending.append((base, after))

    def judge(self, current: Branch) -> tuple[Branch, Branch] | None:
        """Decides the attempts by a record that was read after they were sent.

        Returns:
            The record that an attempt was applied to, and the one that it wrote; None if none was applied so far.
            `current` may be a later record than the one that it wrote.

        Raises:
            OutcomeUnknownError: the record no longer shows whether an attempt was applied.
        """
        pending, self._pending = self._pending, []
        for base, after in pending:
            match settle(base, after.recent_op_ids[0], current):
                case Settled.APPLIED:
                    self._pending = []
                    return base, after
                case Settled.PENDING:
                    self._pending.append((base, after))
                case Settled.UNDECIDABLE:
                    raise OutcomeUnknownError(
                        "cannot settle a change of a branch: too many changes followed it; "
                        "look at the branch before you repeat the change"
                    )
                case Settled.NOT_APPLIED:
                    pass
        return None

    @contextmanager
    def unknown_if_pending(self) -> Iterator[None]:
        """Turns every failure into an unknown outcome while an attempt is pending.

        A failed predicate passes through: the record that it carries decides the attempts.
        """
        try:
            yield
        except (OutcomeUnknownError, PredicateFailedError):
            raise
        except TarnError as error:
            if not self._pending:
                raise
            text = f"an earlier attempt may still be applied; a later step failed: {error.message}"
            raise OutcomeUnknownError(text) from error

"""Guards of listings that leap over tombstones (docs/design/tombstones.md), and the replacements that disable them
(see `lake_guards`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.faults.guards import Guard, Weakening

from tarn.core.ids import RangeId
from tarn.core.listing.run import Bools
from tarn.kv.port import Partition, SiftedPage, Versioned
from tarn_graveler.branch.coverage import Coverage
from tarn_graveler.branch.leaps import Leaps

__all__ = ["LEAP_GUARDS"]


def _of_any_token(self: Coverage, tokens: Sequence[Partition], range_id: RangeId) -> Bools | None:
    """Takes a row for covered if any token has ever covered it."""
    found: Bools | None = None
    for (_, known), rows in self._known._entries.items():
        if known == range_id:
            found = rows if found is None else found | rows
    return found


class _Blind:
    """A store for leaps that finds no row above another one."""

    def __init__(self, kv: Any) -> None:
        self._kv = kv

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kv, name)

    async def get_many(self, _: Partition, keys: Sequence[bytes]) -> list[Versioned | None]:
        return [None for _ in keys]

    async def scan_without(self, *args: Any) -> SiftedPage:
        *others, unwanted = args
        page: SiftedPage = await self._kv.scan_without(*others, replace(unwanted, hidden_by=()))
        return page


_init = Leaps.__init__


def _init_blindly(self: Leaps, kv: Any, *args: Any, **how: Any) -> None:
    blind: Any = _Blind(kv)
    _init(self, blind, *args, **how)


LEAP_GUARDS: Sequence[Guard] = (
    Guard(
        "leap-covers-by-token",
        "tombstones",
        "I1",
        "a listing skips rows that a token covered which the record does not name",
        (Weakening(Coverage, "of", _of_any_token),),
        runs=200,
    ),
    Guard(
        "leap-asks-above",
        "tombstones",
        "I1",
        "a leap does not look for rows above those that it found",
        (Weakening(Leaps, "__init__", _init_blindly),),
        runs=200,
    ),
)

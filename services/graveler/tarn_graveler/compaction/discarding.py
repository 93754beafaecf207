"""Discards uncommitted entries by path and address, for erasures: rules 9 and 10 of docs/design/protocol.md.

The reset of a part (`part_resets`), whose part is those entries. Seal; confirm the seal; judge each path by the sealed
rows and the listing beneath; build the listing of all that remains, with the commit's content at the paths that are
judged; publish it by one compare-and-set of the whole record. So no entry goes that was not the newest one of its path
when it went, and nothing that was written, merged or restored meanwhile is hidden. A tombstone could not promise that:
one that lands late lies over whatever the branch has at the path by then.

Executable in tests/models/branch_resets.py (`erase`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tarn.core.branch import Branch, with_oldest_of
from tarn.core.entry import TOMBSTONE, address_of, is_tombstone
from tarn.core.errors import Kind, Reason, TarnError
from tarn_graveler.branch.building import BuildOrder
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.branch.layers import LayerRow, Layers
from tarn_graveler.compaction.part_resets import TRIAL_BUILD_FROM, PartResets
from tarn_graveler.records.branches import BranchChange, Branches, BranchName, BranchVersion

__all__ = ["Discarded", "Discarding", "NamedEntry"]

NamedEntry = tuple[str, bytes]
"""A path, and the address of the entry that is meant."""

_TRIES = 16

_Outcomes = dict[NamedEntry, "Discarded"]
_Rows = dict[str, bytes]
"""By path, the content of the commit: an entry or a tombstone."""


class Discarded(enum.Enum):
    """The outcome for an uncommitted entry."""

    DISCARDED = "discarded"
    """It is gone: the path has the content of the branch's commit, or of a later write."""
    REPLACED = "replaced"
    """The newest entry of the path has another address."""
    COMMITTED = "committed"
    """The branch's commit has the entry."""
    ABSENT = "absent"
    """The branch has no object at the path."""


class Discarding:
    """Discards uncommitted entries of branches."""

    def __init__(self, branches: Branches, layers: Layers, resets: PartResets) -> None:
        self._branches = branches
        self._layers = layers
        self._resets = resets

    async def judge(self, name: BranchName, entries: Sequence[NamedEntry]) -> list[Discarded]:
        """Returns what `discard` would do at this moment, for each entry in order; changes nothing.

        Raises:
            TarnError: BRANCH_NOT_FOUND; TOO_MANY_RETRIES; errors of the stores.
        """
        outcomes, _, _ = await self._judge_now(BranchHandle(self._branches, name), entries)
        return [outcomes[entry] for entry in entries]

    async def discard(self, name: BranchName, entries: Sequence[NamedEntry]) -> list[Discarded]:
        """Discards those entries that are uncommitted and the newest ones of their paths: all in one step.

        Changes nothing, and seals nothing, if there is none. May be repeated: an entry that is gone is then ABSENT or
        COMMITTED.

        Args:
            name: the branch.
            entries: paths and addresses; no client can stage one of these addresses any more (rule 11).

        Returns:
            The outcome of each entry, in order.

        Raises:
            TarnError: BRANCH_NOT_FOUND; TOO_MANY_RETRIES; OUTCOME_UNKNOWN; errors of the build.
        """
        handle = BranchHandle(self._branches, name)
        outcomes, record, is_staged = await self._judge_now(handle, entries)
        pending = [each for each in outcomes if outcomes[each] is Discarded.DISCARDED]
        if pending:
            if is_staged:
                record = await self._seal(handle, record, pending)
            outcomes |= await self._discard(handle, record, pending)
        return [outcomes[entry] for entry in entries]

    async def _judge_now(
        self, handle: BranchHandle, entries: Sequence[NamedEntry]
    ) -> tuple[_Outcomes, BranchVersion, bool]:
        """Judges by all layers of a record that is verified afterwards.

        Returns:
            The outcomes, the record, and whether one of the entries to discard is in its staging token.
        """
        record = await handle.version()
        for _ in range(_TRIES):
            found = await self._find(handle.name, record.branch, entries, depth_min=0)
            outcomes, rows = await self._judge(handle.name, record.branch, entries, found)
            verified = await self._verify(handle)
            if verified.branch.same_layers(record.branch):
                return outcomes, verified, any(found[path].depth == 0 for path in rows)
            record = verified
        raise _changed_too_often(handle.name)

    async def _verify(self, handle: BranchHandle) -> BranchVersion:
        """Returns the record after the last layer read: a token that has left it may be dropped, and looks empty."""
        return await handle.version()

    async def _seal(
        self, handle: BranchHandle, record: BranchVersion, entries: Sequence[NamedEntry]
    ) -> BranchVersion:
        """Returns a confirmed record in which the rows that were found in the staging token are sealed."""
        branch = record.branch
        if len(branch.sealed) >= TRIAL_BUILD_FROM:
            # Earlier builds failed. Add one more layer only if a build succeeds again.
            found = await self._find(handle.name, branch, entries, depth_min=1)
            _, rows = await self._judge(handle.name, branch, entries, found)
            await self._resets.try_build(await self._order(handle.name, branch, rows))
        return await handle.seal()

    async def _discard(
        self, handle: BranchHandle, record: BranchVersion, pending: Sequence[NamedEntry]
    ) -> _Outcomes:
        built_from = record.branch
        for _ in range(_TRIES):
            found = await self._find(handle.name, built_from, pending, depth_min=1)
            outcomes, rows = await self._judge(handle.name, built_from, pending, found)
            if rows:
                order = await self._order(handle.name, built_from, rows)
                outcome = await self._resets.leave(handle, record, built_from, order)
                if isinstance(outcome, BranchChange):
                    return outcomes
            else:
                outcome = await self._verify(handle)
                if outcome.branch.same_layers(record.branch):
                    return outcomes
            record = outcome
            built_from = with_oldest_of(built_from, outcome.branch)
        raise _changed_too_often(handle.name)

    async def _find(
        self, name: BranchName, record: Branch, entries: Sequence[NamedEntry], *, depth_min: int
    ) -> dict[str, LayerRow]:
        """Returns the newest row of each path, by a record and without the layers above `depth_min`."""
        paths = list(dict.fromkeys(path for path, _ in entries))
        found = await self._layers.find(name, record, paths, depth_min=depth_min)
        return dict(zip(paths, found, strict=True))

    async def _judge(
        self,
        name: BranchName,
        record: Branch,
        entries: Sequence[NamedEntry],
        found: Mapping[str, LayerRow],
    ) -> tuple[_Outcomes, _Rows]:
        """Returns the outcome of each entry, and the commit's rows of the paths whose entries are to be discarded."""
        outcomes: _Outcomes = {}
        rows: _Rows = {}
        for path, address in entries:
            outcome = _judged(found[path].packed, address)
            if outcome is Discarded.DISCARDED:
                committed = await self._layers.find_committed(
                    name.repository, record.commit_id, path
                )
                if committed is not None and address_of(committed) == address:
                    outcome = Discarded.COMMITTED
                else:
                    rows[path] = TOMBSTONE if committed is None else committed
            outcomes[path, address] = outcome
        return outcomes, rows

    async def _order(self, name: BranchName, record: Branch, rows: _Rows) -> BuildOrder:
        """Orders the listing of a record's base and sealed tokens with the commit's rows over them."""
        order = await self._layers.order(name, record)
        layer = tuple(sorted(rows.items()))
        return replace(order, rows=layer, counts_changes=False, finely=True)


def _judged(newest: bytes | None, address: bytes) -> Discarded:
    """Judges an entry by the newest row of its path, as if the commit did not have it."""
    if newest is None or is_tombstone(newest):
        return Discarded.ABSENT
    return Discarded.DISCARDED if address_of(newest) == address else Discarded.REPLACED


def _changed_too_often(name: BranchName) -> TarnError:
    text = (
        f"branch {name.branch_id} changed {_TRIES} times while erased entries were discarded; "
        "try again"
    )
    return TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)

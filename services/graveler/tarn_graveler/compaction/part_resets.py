"""Resets of a prefix or of one object: rules 6, 9 and 10 of docs/design/protocol.md, executable in
tests/models/branch_resets.py.

Seal; confirm the seal; build the listing of all that remains: the commit's content under the prefix, and the sealed
rows over the former listing everywhere else. One compare-and-set of the whole record then puts that listing beneath the
staging token as the compacted one and removes the sealed tokens. It also replaces the staging token, because the
content beneath it changes. So the reset is atomic, whatever its size. Rows under the prefix are not read.

Rows that are acknowledged after the seal stay, under the prefix, too.
"""

from __future__ import annotations

from dataclasses import replace

from tarn.block.committed import Committed
from tarn.core.branch import (
    AfterLostRace,
    Branch,
    Pin,
    after_lost_race,
    reset_part,
    with_oldest_of,
)
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.listing.spans import PathSpan
from tarn_graveler.branch.building import Builder, BuildOrder
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.branch.layers import Layers
from tarn_graveler.compaction.compacted_listings import CompactedListings
from tarn_graveler.guards.drops import Drops
from tarn_graveler.records.branches import BranchChange, Branches, BranchName, BranchVersion

__all__ = ["TRIAL_BUILD_FROM", "PartResets"]

_TRIES = 16
TRIAL_BUILD_FROM = 8
"""Number of sealed tokens from which a reset seals another one only after a successful trial build."""


class PartResets:
    """Discards uncommitted changes of some paths of a branch."""

    def __init__(
        self,
        branches: Branches,
        layers: Layers,
        committed: Committed,
        builder: Builder,
        listings: CompactedListings,
        drops: Drops,
        clock: Clock,
    ) -> None:
        self._branches = branches
        self._layers = layers
        self._committed = committed
        self._builder = builder
        self._listings = listings
        self._drops = drops
        self._clock = clock

    async def reset(self, name: BranchName, span: PathSpan) -> None:
        """Discards the uncommitted changes of the paths in a span: those acknowledged before this call, and perhaps
        some of those under way. All other uncommitted changes stay.

        Changes nothing if the span has no uncommitted change. Never repeated after an unknown outcome.

        Raises:
            TarnError: BRANCH_NOT_FOUND; TOO_MANY_RETRIES; OUTCOME_UNKNOWN; errors of the build.
        """
        handle = BranchHandle(self._branches, name)
        record = await self._seal(handle, span)
        built_from = record.branch
        for _ in range(_TRIES):
            if await self._is_changed(name, built_from, span):
                order = await self._remaining(name, built_from, span)
                outcome = await self.leave(handle, record, built_from, order)
                if isinstance(outcome, BranchChange):
                    return
            else:
                # A token that has left the record may be dropped: then finding no row says nothing.
                outcome = await handle.version()
                if outcome.branch.same_layers(record.branch):
                    return
            record = outcome
            built_from = with_oldest_of(built_from, outcome.branch)
        text = f"branch {name.branch_id} changed {_TRIES} times during one reset; try again"
        raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)

    async def _seal(self, handle: BranchHandle, span: PathSpan) -> BranchVersion:
        """Returns a confirmed record whose sealed tokens and base hold every row of the span that was acknowledged
        before.

        A staging token without such a row is not sealed. So a reset that has nothing to discard adds no layer.
        """
        current = await handle.version()
        branch = current.branch
        if not await self._layers.has_rows(handle.name, branch.staging, span):
            verified = await handle.version()
            if verified.branch.same_layers(branch):
                return verified
        elif len(branch.sealed) >= TRIAL_BUILD_FROM:
            # Earlier builds failed. Add one more layer only if a build succeeds again.
            await self.try_build(await self._remaining(handle.name, branch, span))
        return await handle.seal()

    async def _is_changed(self, name: BranchName, record: Branch, span: PathSpan) -> bool:
        """Whether a path of the span has a row in a sealed token, or differs between compacted listing and commit."""
        for token in record.sealed:
            if await self._layers.has_rows(name, token, span):
                return True
        head = await self._layers.head_beneath(name.repository, record)
        if head is None:
            return False
        base = await self._layers.base_of(name.repository, record)
        return await self._committed.differences.differs(
            name.repository.storage_namespace, head, base, span
        )

    async def _remaining(self, name: BranchName, record: Branch, span: PathSpan) -> BuildOrder:
        """Orders the listing of what remains of a record's base and sealed tokens."""
        return replace(await self._layers.order(name, record), reset=span, finely=True)

    async def leave(
        self, handle: BranchHandle, record: BranchVersion, built_from: Branch, order: BuildOrder
    ) -> BranchChange | BranchVersion:
        """Builds the listing of all that remains of a record, and puts it beneath a new staging token.

        Args:
            handle: the branch.
            record: the newest record that is known.
            built_from: the record that the order was made from; only its sealed tokens are removed.
            order: the build.

        Returns:
            The change; or a newer record, without the change, for which the listing must be built again.

        Raises:
            TarnError: as `CompactedListings.build` and `BranchHandle.publish`.
        """
        built = await self._listings.build(handle, record, built_from, order)
        return await self._publish(handle, built.record, built_from, built.pin)

    async def try_build(self, order: BuildOrder) -> None:
        """Builds a listing that nothing will refer to, to see whether a build succeeds.

        Raises:
            TarnError: as `Builder.build`.
        """
        await self._builder.build(order)

    async def _publish(
        self,
        handle: BranchHandle,
        record: BranchVersion,
        built_from: Branch,
        pin: Pin | None,
    ) -> BranchChange | BranchVersion:
        """Makes the change; returns the newer record instead if the listing must be built again."""

        def decide(current: Branch, op_id: bytes) -> Branch:
            token = self._branches.new_token(current.staging.kind)
            now_us = self._clock.now_us()
            return reset_part(built_from, current, pin, token, op_id, now_us=now_us)

        def still_holds(current: Branch) -> bool:
            return after_lost_race(built_from, current, pin) is AfterLostRace.REUSE

        return await handle.publish(
            record, decide, still_holds=still_holds, announce=self._drops.announce
        )

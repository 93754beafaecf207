"""An upload to a path of a lake, completed through either replica, by processes that may die."""

from __future__ import annotations

from dataclasses import dataclass

from lake import Lake, Running, ended, entry, reached

from tarn.core.branch import seal
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn_graveler.branch.handle import BranchHandle, claims_nothing
from tarn_graveler.uploads.state import Claim

__all__ = ["Upload", "seal_main"]


@dataclass
class Upload:
    """An upload to the path `k`, through either replica."""

    lake: Lake
    upload_id: str
    claim: Claim

    async def finish(
        self, lake: Lake | None = None, condition: WriteCondition = UNCONDITIONAL
    ) -> None:
        packed = entry(1, self.upload_id)
        by = lake or self.lake
        uploads = by.graveler.uploads
        await uploads.finish_complete(
            by.repository, self.upload_id, self.claim.op_id, packed, condition
        )

    async def dies_before_its_row(self, running: Running) -> None:
        """Cancels the completion before its row is written, as if its process died."""
        await self._dies(running, "set_many", UNCONDITIONAL, after=False)

    async def dies_after_its_row(
        self, running: Running, condition: WriteCondition = UNCONDITIONAL
    ) -> None:
        """Cancels the completion after its row is written, as if its process died."""
        await self._dies(running, "set_if" if condition else "set_many", condition, after=True)

    async def _dies(
        self, running: Running, operation: str, condition: WriteCondition, *, after: bool
    ) -> None:
        gate = self.lake.kv.hold(operation, self.lake.row_key("k"), after=after)
        dying = running.start(self.finish(condition=condition))
        await reached(gate)
        dying.cancel()
        await ended(dying)

    async def take_over(self, lake: Lake) -> None:
        """Repeats the completion after the claim has expired."""
        lake.clock.advance(301)
        uploads = lake.graveler.uploads
        self.claim = await uploads.begin_complete(lake.repository, self.upload_id, bytes(32))

    async def is_complete(self) -> bool:
        uploads = self.lake.graveler.uploads
        again = await uploads.begin_complete(self.lake.repository, self.upload_id, bytes(32))
        return bool(again.completed_entry)


async def seal_main(lake: Lake) -> None:
    """Seals the staging token, as a commit does first."""
    branches = lake.graveler.branches
    await BranchHandle(branches, lake.main).change(
        lambda b, op: seal(b, branches.new_token(b.staging.kind), op), claims_nothing
    )

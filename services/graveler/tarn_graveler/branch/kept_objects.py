"""Objects that expired commits keep, by the rules of objects of the repository (docs/design/retention.md)."""

from __future__ import annotations

from tarn.block.port import BlockKey, BlockNotFoundError, BlockStore
from tarn.core.clock import Clock
from tarn.core.entry import is_tombstone, unpack
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId, physical_path
from tarn.kv.records import Repository
from tarn_graveler.branch.layers import Layers
from tarn_graveler.records.branches import Branches, BranchName
from tarn_graveler.records.settings import RepositorySettings

__all__ = ["KeptObjects"]


class KeptObjects:
    """Decides whether an object of an expired commit can be read."""

    def __init__(
        self,
        branches: Branches,
        layers: Layers,
        settings: RepositorySettings,
        blocks: BlockStore,
        clock: Clock,
    ) -> None:
        self._branches = branches
        self._layers = layers
        self._settings = settings
        self._blocks = blocks
        self._clock = clock

    async def keeps(self, repository: Repository, path: str, packed: bytes) -> bool:
        """Returns whether a rule keeps an object, and its block is there.

        A block may be gone although a rule keeps its object now: the rule is newer than the collection, or the path was
        deleted on the branch and came back.

        Args:
            repository: the repository.
            path: of the object.
            packed: its entry in the expired commit.
        """
        rules = (await self._settings.read(repository)).retention.objects
        entry = unpack(packed)
        since_us = rules.written_since_us(self._clock.now_us())
        is_kept = bool(since_us) and entry.mtime_us >= since_us
        # A sweep deletes an object that is not read; until then this read counts.
        is_kept = is_kept or rules.read_days is not None
        for name in rules.listed_on:
            is_kept = is_kept or await self._lists(repository, BranchId(name), path)
        if not is_kept or entry.external_address:
            return is_kept
        block = BlockKey(repository.storage_namespace, physical_path(entry.address))
        try:
            await self._blocks.stat(block)
        except BlockNotFoundError:
            return False
        return True

    async def _lists(self, repository: Repository, branch_id: BranchId, path: str) -> bool:
        """Returns whether the head of a branch has an object at a path."""
        try:
            found = await self._branches.fresh(BranchName(repository, branch_id))
        except TarnError as error:
            if error.reason is not Reason.BRANCH_NOT_FOUND:
                raise
            return False
        packed = await self._layers.find_committed(repository, found.branch.commit_id, path)
        return packed is not None and not is_tombstone(packed)

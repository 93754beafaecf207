"""What a command that fills a store notes of the journals in the bucket (`tarn.journal.following`)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from tarn.block.mem import MemBlockStore
from tarn.block.opening import open_blocks_to_read
from tarn.block.port import ReadBlocks
from tarn.config import Config
from tarn.core.clock import Clock
from tarn.core.errors import Kind, TarnError
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import ListingKv

__all__ = ["JournalNotes"]


@dataclass(slots=True)
class JournalNotes:
    """Notes in a store that was filled, before it opens, which epochs of journals its own ones may follow.

    With the journal off it notes nothing: the store then begins no epoch where the bucket has one.

    Attributes:
        config: of the services of the store.
        clock: of the block store.
        unknown: namespaces of repositories whose bucket could not be read.
    """

    config: Config
    clock: Clock
    unknown: tuple[str, ...] = field(default=())

    async def __call__(self, kv: ListingKv) -> None:
        """Notes them.

        Raises:
            TarnError: the journal of what belongs to no repository cannot be read; errors of the store.
        """
        if not self.config.journal.enabled:
            return
        # Imported only here: they take long to import.
        from tarn.journal.following import note_newest
        from tarn_graveler.config import settings_of

        keys = InstallationKeys(self.config.installation.id)
        async with AsyncExitStack() as stack:
            blocks: ReadBlocks
            try:
                blocks = await open_blocks_to_read(self.config, self.clock)
            except TarnError as error:
                if error.kind is not Kind.NOT_FOUND:
                    raise
                blocks = MemBlockStore(
                    self.clock
                )  # there is no block store yet, so it has no journal
            stack.push_async_callback(blocks.close)
            namespace = settings_of(self.config).drain.namespace
            self.unknown = await note_newest(kv, keys, blocks, namespace)

    def remark(self) -> str:
        """What people must know; empty: nothing."""
        if not self.unknown:
            return ""
        more = f" and of {len(self.unknown) - 1} more" if len(self.unknown) > 1 else ""
        return (
            f"the journal of {self.unknown[0]}{more} could not be read: it is not drained before "
            "`tarn journal follow` (docs/operate/journal.md)"
        )

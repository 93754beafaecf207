"""Notes of the repositories that were restored over a namespace: `_tarn/owners/<instance>.json`.

Two installations do not see each other's metadata. A repository that was moved to another one by a dump uses the blocks
of the first, whose row of the namespace knows nothing of it. So a restore leaves a note in the namespace, and a purge
that finds the note of a later instance deletes nothing. It is a safety net, not a fence: a restore may begin after the
last look.
"""

from __future__ import annotations

import json
import re
from typing import Final

from tarn.block.paging import blocks_below
from tarn.block.port import BlockKey, BlockStore, ReadBlocks

__all__ = ["OWNERS_FOLDER", "newest_owner", "note_owner"]

OWNERS_FOLDER: Final = "_tarn/owners/"
_NOTE: Final = re.compile(r"_tarn/owners/([0-9a-f]{32})\.json")


async def note_owner(
    blocks: BlockStore, namespace: str, repository_id: str, instance_uid: str
) -> None:
    """Notes that a repository uses the blocks of a namespace that were those of another one; may be repeated."""
    body = json.dumps({"repository_id": repository_id, "instance_uid": instance_uid}).encode()
    await blocks.put(BlockKey(namespace, f"{OWNERS_FOLDER}{instance_uid}.json"), body)


async def newest_owner(blocks: ReadBlocks, namespace: str) -> str:
    """Returns the instance of the last restore over a namespace; empty if there was none.

    Instances are UUIDv7, so they sort by the time at which they began.
    """
    newest = ""
    async for info in blocks_below(blocks, namespace, OWNERS_FOLDER):
        if found := _NOTE.fullmatch(info.path):
            newest = max(newest, found[1])
    return newest

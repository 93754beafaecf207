"""Tells a block store of another installation from one that has lost blocks.

The command that collects or erases opens the block store itself, and asks graveler for metadata. If `--data-dir` names
the folder of another installation, every block seems to be missing. No block is deleted then, because the namespace of
a repository has no blocks there; but a report of lost data would be false.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tarn.block.port import ReadBlocks
from tarn.core.commit import COMMITS
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["in_this_store", "refuse_other_store"]

_MISSING: Final = (Kind.CORRUPT, Kind.NOT_FOUND)


async def refuse_other_store(blocks: ReadBlocks, namespace: str, repository_id: str) -> None:
    """Does nothing if the store holds commits of a repository.

    Raises:
        TarnError: FAILED_PRECONDITION, BLOCK_NOT_FOUND: it holds none.
    """
    if await blocks.list_page(namespace, COMMITS, "", 1):
        return
    text = (
        f"the block store has no commit of {repository_id} (none below {namespace}/{COMMITS}): it is probably that of "
        "another installation; name the right one by --data-dir or --config (`tarn context` shows both). If it "
        "is the right one, all data of this repository are lost"
    )
    raise TarnError(Kind.FAILED_PRECONDITION, Reason.BLOCK_NOT_FOUND, text, path=COMMITS)


@asynccontextmanager
async def in_this_store(
    blocks: ReadBlocks, namespace: str, repository_id: str
) -> AsyncIterator[None]:
    """Lets no missing or damaged file be reported if the store holds nothing of the repository.

    Raises:
        TarnError: as `refuse_other_store`, instead of an error about files that are missing.
    """
    try:
        yield
    except TarnError as error:
        if error.kind in _MISSING:
            await refuse_other_store(blocks, namespace, repository_id)
        raise

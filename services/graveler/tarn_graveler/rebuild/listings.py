"""The listings of a rebuilt repository are there when it opens, whatever a sweep of the lost store still does.

A sweep may have marked a listing that the rebuild built a day ago, or that an attempt which died had built: nothing in
the lost store names it. It deletes it although the epoch of the rebuild has begun, if it asked for leave before
(`Drain.before_deletion`). But what it may delete is in its quarantine, in the bucket, from before it asked. So when the
epoch has begun, the rebuild looks there. What no quarantine names, nothing deletes. Blocks that one names are written
again, which makes them young: a sweep that looks at them later spares them. One that has looked before deletes them
within `CollectionLimits.batch_us`, or not at all (`tarn.collection.deleting`). After that time all must be there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

import structlog

from tarn.aio.parallel import for_each
from tarn.block.committed import Committed
from tarn.block.port import BlockExistsError, BlockKey, BlockNotFoundError, BlockStore, put_again
from tarn.block.rangefile import metarange_path, range_path
from tarn.collection.block_names import BlockKind, paths_of
from tarn.collection.quarantine import marked_runs, read_manifest, read_parts
from tarn.core.clock import Clock
from tarn.core.collection import LIMITS
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import MetarangeId

__all__ = ["Show", "built_blocks", "require_listings", "show_nothing"]

Show = Callable[[str, int, int], None]
"""Gets what a rebuild waits for and how long still, for people; how many seconds have passed, and of how many."""


def show_nothing(_what: str, _passed: int, _total: int) -> None:
    """Shows nothing."""


_AT_ONCE: Final = 16
_STEP_S: Final = 5
_NAMED_MAX: Final = 5
_log = structlog.get_logger()


async def built_blocks(
    committed: Committed, namespace: str, listings: Sequence[tuple[MetarangeId, MetarangeId]]
) -> frozenset[str]:
    """Returns the paths of the metaranges and ranges of listings that their commits do not have.

    Those of commits are roots of the lost store: it ends them by events, which a rebuild notices.

    Args:
        committed: reads listings.
        namespace: of the repository.
        listings: of branches, each with that of the branch's commit.

    Raises:
        TarnError: CORRUPT, NOT_FOUND: a listing cannot be read. Errors of the store.
    """
    found: set[str] = set()
    for listing, head in listings:
        known = {each.range_id for each in (await committed.metarange(namespace, head)).ranges}
        found.add(metarange_path(listing))
        for each in (await committed.metarange(namespace, listing)).ranges:
            if each.range_id not in known:
                found.add(range_path(each.range_id))
    return frozenset(found)


async def require_listings(
    blocks: BlockStore,
    listings: Mapping[str, frozenset[str]],
    clock: Clock,
    show: Show = show_nothing,
) -> None:
    """Returns when no sweep of the lost store will delete the listings of a rebuild, and all of them are there.

    The epochs of the rebuild must have begun. Waits some 20 minutes if a sweep has marked one of them.

    Args:
        blocks: the store.
        listings: by namespace, the paths as of `built_blocks`.
        clock: of the wait.
        show: called while it waits.

    Raises:
        TarnError: FAILED_PRECONDITION: some are gone; the store must not be opened. Errors of the store.
    """
    must_wait = False
    seconds = LIMITS.batch_us // 1_000_000
    for namespace, paths in listings.items():
        marked = {path async for path in _marked(blocks, namespace, paths)} if paths else set()
        if marked:
            await _put_again(blocks, namespace, sorted(marked))
            must_wait = True
            _log.warning(
                "a collection of the lost store has marked listings of this rebuild: they were written again, and the "
                "rebuild waits until no deletion can be under way",
                namespace=namespace,
                blocks=len(marked),
                seconds=seconds,
            )
    begun = clock.monotonic()
    while must_wait and (passed := clock.monotonic() - begun) <= seconds:
        minutes = -(-(seconds - int(passed)) // 60)
        what = f"waiting for deletions of the lost store, {minutes} min left"
        show(what, int(passed), seconds)
        await clock.sleep(_STEP_S)
    for namespace, paths in listings.items():
        await _require_all(blocks, namespace, sorted(paths))


async def _marked(blocks: BlockStore, namespace: str, paths: frozenset[str]) -> AsyncIterator[str]:
    """Yields those paths that a quarantine names; all of them if one cannot be read."""
    for run_id in await marked_runs(blocks, namespace):
        try:
            if (manifest := await read_manifest(blocks, namespace, run_id)) is None:
                continue  # its files were deleted meanwhile, a week after its end
            for kind in (BlockKind.RANGE, BlockKind.METARANGE):
                async for rows in read_parts(blocks, namespace, manifest, kind):
                    for path in paths.intersection(paths_of(kind, rows["key"]).to_pylist()):
                        yield path
        except TarnError as error:
            if error.kind is not Kind.CORRUPT:
                raise
            for path in paths:
                yield path


async def _put_again(blocks: BlockStore, namespace: str, paths: Sequence[str]) -> None:
    async def put(path: str) -> None:
        key = BlockKey(namespace, path)
        try:
            await put_again(blocks, key)
        except BlockNotFoundError as error:
            raise _gone(namespace, [path]) from error
        except BlockExistsError:  # another version of the library wrote other bytes of it meanwhile
            await put_again(blocks, key)

    await for_each(paths, put, _AT_ONCE)


async def _require_all(blocks: BlockStore, namespace: str, paths: Sequence[str]) -> None:
    gone: list[str] = []

    async def look(path: str) -> None:
        try:
            await blocks.stat(BlockKey(namespace, path))
        except BlockNotFoundError:
            gone.append(path)

    await for_each(paths, look, _AT_ONCE)
    if gone:
        raise _gone(namespace, gone)


def _gone(namespace: str, paths: Sequence[str]) -> TarnError:
    text = (
        f"a collection of the lost store has deleted listings of this rebuild in {namespace}, e.g. "
        f"{', '.join(sorted(paths)[:_NAMED_MAX])}. Stop it, and rebuild again into an empty store; if the journal was "
        "replayed in Spark, do that again, too (docs/operate/disaster.md)"
    )
    return TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, text)

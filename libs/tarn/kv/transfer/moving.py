"""Whole transfers: who is closed when, so that no acknowledged write is left behind and no half of an
installation is ever used. `docs/operate/migrate.md` has the argument.

    dump     source held → files → source open again (or closed for good)
    load     target empty → loading → rows → open
    migrate  target empty → loading, source held → rows → source moved → target open

Each can be interrupted at any point and begun again: the fences say which transfer it was, and what is
there already is found there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.agreement import forget_settings, read_settings
from tarn.kv.fence import (
    QUIET_SECONDS,
    Fence,
    FencedKv,
    FenceState,
    closed_by,
    read_fence,
    write_fence,
)
from tarn.kv.port import ListingKv
from tarn.kv.transfer.copying import copy_into
from tarn.kv.transfer.dump_folder import DumpFolder, DumpWriter
from tarn.kv.transfer.dump_format import Begun, Finished
from tarn.kv.transfer.dumping import dump_store
from tarn.kv.transfer.layout import is_empty
from tarn.kv.transfer.sources import DumpSource, StoreSource
from tarn.kv.transfer.work import TransferOptions

__all__ = ["OpenStore", "Transferred", "dump", "forget_agreed", "load", "migrate", "reopen"]


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store that a transfer has open.

    Attributes:
        kv: it.
        installation_id: what of it.
        about: where it is, for people; no secrets.
        is_shared: processes that we cannot see may have it open, and answer on their leases.
    """

    kv: ListingKv
    installation_id: str
    about: str
    is_shared: bool


@dataclass(frozen=True, slots=True)
class Transferred:
    """What a transfer did.

    Attributes:
        transfer_id: names it.
        ranges: that are there now.
        rows: in them.
        size_bytes: of these rows.
        changed: ranges that changed at the source while it was read, and were read again.
        strays: partitions that no record refers to, taken along all the same.
    """

    transfer_id: str
    ranges: int
    rows: int
    size_bytes: int
    changed: int
    strays: tuple[str, ...] = ()


async def dump(
    source: OpenStore,
    folder: Path,
    ids: IdSource,
    options: TransferOptions,
    *,
    keep_closed: bool = False,
) -> tuple[Finished, Transferred]:
    """Dumps a store into a folder, or goes on with that.

    Args:
        source: what to dump.
        folder: empty or not there, or a dump of it that was interrupted.
        ids: names the dump.
        options: see `TransferOptions`.
        keep_closed: the source shall not be used any more: the dump is on its way to another store.

    Raises:
        TarnError: FAILED_PRECONDITION: the source or the folder is in use otherwise; CONFLICT: the source
            does not come to rest; the store's. After any of them the source is open again.
        OSError: the files cannot be written.
    """
    clock = options.clock
    begun = Begun(ids.uuid7().hex(), source.installation_id, clock.now_us())
    with DumpWriter(folder, begun) as writer:
        held = Fence(
            FenceState.HELD,
            writer.begun.transfer_id,
            ids.uuid7().hex(),
            f"dump to {folder}",
            clock.now_us(),
        )
        async with _held(source, held, options):
            inventory, changed = await dump_store(
                _behind(source, held, clock), source.installation_id, writer, options
            )
            ranges = sum(len(part.ranges) for part in writer.parts)
            manifest = writer.finish(clock.now_us())
            if keep_closed:
                await _change(source, held, replace(held, state=FenceState.MOVED))
    rows, size_bytes = manifest.rows, manifest.size_bytes
    return manifest, Transferred(
        held.transfer_id, ranges, rows, size_bytes, changed, inventory.strays
    )


async def load(
    dumped: DumpFolder, target: OpenStore, ids: IdSource, options: TransferOptions
) -> Transferred:
    """Fills an empty store from a dump, or goes on with that.

    Raises:
        TarnError: FAILED_PRECONDITION: the dump is of another installation, or the target is closed by
            another transfer; CONFLICT: the target is not empty; CORRUPT: the dump; the store's. The
            target stays closed.
    """
    begun = dumped.manifest.begun
    if begun.installation_id != target.installation_id:
        text = (
            f"the dump is of installation {begun.installation_id!r}, not {target.installation_id!r}"
        )
        raise _refused(text)
    loading = Fence(
        FenceState.LOADING,
        begun.transfer_id,
        ids.uuid7().hex(),
        f"dump {dumped.path}",
        options.clock.now_us(),
    )
    await _begin_loading(target, loading, options)
    progress, changed = await copy_into(
        _behind(target, loading, options.clock),
        target.installation_id,
        DumpSource(dumped),
        options,
    )
    await _change(target, loading, None)
    return Transferred(
        begun.transfer_id, progress.ranges, progress.rows, progress.size_bytes, changed
    )


async def migrate(
    source: OpenStore, target: OpenStore, ids: IdSource, options: TransferOptions
) -> Transferred:
    """Takes an installation from one store to another, or goes on with that.

    Raises:
        TarnError: FAILED_PRECONDITION: one of them is closed by another transfer, or was moved already;
            CONFLICT: the target is not empty, or the source does not come to rest; the stores'. Both
            stay closed once anything was written.
    """
    if source.installation_id != target.installation_id:
        text = f"{source.installation_id!r} cannot become {target.installation_id!r}: set installation.id"
        raise _refused(text)
    before, _ = await read_fence(source.kv, source.installation_id)
    there, _ = await read_fence(target.kv, target.installation_id)
    transfer_id = _transfer_of(source, before, target, there) or ids.uuid7().hex()
    run_id, now_us = ids.uuid7().hex(), options.clock.now_us()
    about = f"migration from {source.about} to {target.about}"
    loading = Fence(FenceState.LOADING, transfer_id, run_id, about, now_us)
    held = replace(loading, state=FenceState.HELD)
    moved = replace(loading, state=FenceState.MOVED)
    await _begin_loading(target, loading, options)
    if before is not None and before.state is FenceState.MOVED:
        # Interrupted at the very end: it stays closed as it is.
        held = moved = before
    else:
        await _hold(source, held, options)
    read = StoreSource(_behind(source, held, options.clock), source.installation_id)
    progress, changed = await copy_into(
        _behind(target, loading, options.clock), target.installation_id, read, options
    )
    # In this order: there is no moment in which both may be used.
    await _change(source, held, moved)
    await _change(target, loading, None)
    return Transferred(
        transfer_id,
        progress.ranges,
        progress.rows,
        progress.size_bytes,
        changed,
        read.inventory.strays,
    )


async def reopen(place: OpenStore, *, force: bool = False) -> Fence | None:
    """Removes the fence of a store; returns what it was.

    Args:
        place: the store.
        force: also of a store that is not all there, or whose data goes on elsewhere.

    Raises:
        TarnError: FAILED_PRECONDITION: that needs `force`; the store's.
    """
    fence, predicate = await read_fence(place.kv, place.installation_id)
    if fence is None:
        return None
    if fence.state is not FenceState.HELD and not force:
        what = (
            "not all of it is there: go on with the transfer, or empty it"
            if fence.state is FenceState.LOADING
            else "its data went elsewhere, and writes to both cannot be brought together"
        )
        raise _refused(f"{place.about} stays closed ({fence.about}); {what}, or use --force")
    await write_fence(place.kv, place.installation_id, None, predicate)
    return fence


async def forget_agreed(
    place: OpenStore, ids: IdSource, options: TransferOptions
) -> dict[str, str]:
    """Removes the record of what replicas must agree on, while nobody may use the store; returns what it
    said. The first process that starts afterwards notes its own settings.

    Raises:
        TarnError: FAILED_PRECONDITION: a transfer has closed the store; CORRUPT: the record; the store's.
    """
    run_id, now_us = ids.uuid7().hex(), options.clock.now_us()
    held = Fence(FenceState.HELD, run_id, run_id, "its settings are being forgotten", now_us)
    async with _held(place, held, options):
        settings = await read_settings(place.kv, place.installation_id)
        await forget_settings(place.kv, place.installation_id)
    return settings


@asynccontextmanager
async def _held(source: OpenStore, held: Fence, options: TransferOptions) -> AsyncIterator[None]:
    """Keeps the source closed; opens it afterwards unless it was given another fence."""
    await _hold(source, held, options)
    try:
        yield
    finally:
        fence, predicate = await read_fence(source.kv, source.installation_id)
        if fence == held:
            await write_fence(source.kv, source.installation_id, None, predicate)


def _behind(place: OpenStore, fence: Fence, clock: Clock) -> ListingKv:
    """The store, for as long as the fence is the one that we set."""
    return FencedKv(place.kv, place.installation_id, clock, fence)


async def _hold(source: OpenStore, held: Fence, options: TransferOptions) -> None:
    """Closes the source, or takes over from an earlier attempt, and waits until nobody works on the
    leases of before: neither a service nor that attempt."""
    fence, predicate = await read_fence(source.kv, source.installation_id)
    if fence is not None and not _same(fence, held):
        raise _refused(closed_by(fence, source.installation_id))
    await write_fence(source.kv, source.installation_id, held, predicate)
    if source.is_shared:
        await options.clock.sleep(QUIET_SECONDS)


async def _begin_loading(target: OpenStore, loading: Fence, options: TransferOptions) -> None:
    """Closes a target that is empty, or takes over one that an earlier attempt has closed."""
    fence, predicate = await read_fence(target.kv, target.installation_id)
    if fence is not None and not _same(fence, loading):
        raise _refused(closed_by(fence, target.installation_id))
    if fence is None:
        await _check_empty(target)
    await write_fence(target.kv, target.installation_id, loading, predicate)
    if target.is_shared:
        await options.clock.sleep(QUIET_SECONDS)
    if target.is_shared and fence is None:
        try:
            await _check_empty(target)  # somebody was using it
        except TarnError:
            await _change(target, loading, None)
            raise


async def _check_empty(target: OpenStore) -> None:
    if not await is_empty(target.kv, target.installation_id):
        text = (
            f"{target.about} holds an installation {target.installation_id!r} already; "
            "a transfer only goes into an empty one"
        )
        raise TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)


async def _change(place: OpenStore, expected: Fence, fence: Fence | None) -> None:
    """Replaces our own fence; it may be replaced already.

    Raises:
        TarnError: CONFLICT: somebody opened the store meanwhile.
    """
    found, predicate = await read_fence(place.kv, place.installation_id)
    if found == fence:
        return
    if found != expected:
        text = f"{place.about} was opened or closed by somebody else during the transfer"
        raise TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)
    await write_fence(place.kv, place.installation_id, fence, predicate)


def _transfer_of(
    source: OpenStore, before: Fence | None, target: OpenStore, there: Fence | None
) -> str | None:
    """The migration that was begun and goes on; None for a new one.

    Raises:
        TarnError: FAILED_PRECONDITION: the fences are of something else.
    """
    if there is not None and there.state is not FenceState.LOADING:
        raise _refused(closed_by(there, target.installation_id))
    if before is None:
        return there.transfer_id if there is not None else None
    if there is None:
        if before.state is FenceState.HELD:
            # Interrupted before the target was closed; `_begin_loading` looks whether it is empty.
            return before.transfer_id
        raise _refused(closed_by(before, source.installation_id))
    if before.transfer_id != there.transfer_id:
        raise _refused(closed_by(before, source.installation_id))
    return before.transfer_id


def _same(found: Fence, wanted: Fence) -> bool:
    return (found.state, found.transfer_id) == (wanted.state, wanted.transfer_id)


def _refused(text: str) -> TarnError:
    return TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)

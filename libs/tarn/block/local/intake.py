"""Gives complete bodies their names: small ones as rows, large ones and everything under `_tarn/` as files.

A large body takes these steps: draft → bytes synced → linked under the writers' lock (no row or file has
the path) → directory synced → acknowledged. Files under `_tarn/` skip the lock, because no row ever has
such a path. There, an existing file with equal bytes is not an error: it gets a new time instead.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Self, TypeVar

from tarn.aio.close_guard import CloseGuard
from tarn.aio.thread_work import Threads
from tarn.block.keys import METADATA_PREFIX
from tarn.block.local.draft import Draft, Drafts, Source
from tarn.block.local.faults import Faults
from tarn.block.local.group_writer import GroupWriter
from tarn.block.local.namespaces import LocalNamespace
from tarn.block.local.open_files import OpenFiles
from tarn.block.local.reserve import DiskReserve
from tarn.block.local.tree import Tree
from tarn.block.port import THREAD_TURN_BYTES, Append, BlockExistsError, BlockKey

__all__ = ["HELD_BYTES_MAX", "Intake", "LocalWriter"]

T = TypeVar("T")

_HOLD_BYTES: Final = 256 << 10
"""Bytes that a writer collects before it hands them to a thread; larger writes are handed over uncopied."""

HELD_BYTES_MAX: Final = 64 << 20
"""Bytes that all writers together collect. Beyond it, each write goes to its draft at once: thousands of slow bodies
take files, whose number has a bound of its own, and no memory."""

_LINK_ATTEMPTS: Final = 8


class Intake:
    """Gives complete bodies their names."""

    def __init__(
        self,
        tree: Tree,
        drafts: Drafts,
        group_writer: GroupWriter,
        threads: Threads,
        files: OpenFiles,
        guard: CloseGuard,
        small_bytes_max: int,
        reserve: DiskReserve,
    ) -> None:
        self.tree = tree
        self.drafts = drafts
        self.threads = threads
        self.files = files
        self.guard = guard
        self.writers: set[LocalWriter] = set()
        self.held_bytes = 0  # of all writers; at most HELD_BYTES_MAX
        self.small_bytes_max = small_bytes_max
        self.reserve = reserve
        self._group_writer = group_writer

    def is_small(self, path: str, size_bytes: int) -> bool:
        """Returns whether a body becomes a row. Metadata never does: other engines read it from the directory."""
        return size_bytes <= self.small_bytes_max and not path.startswith(METADATA_PREFIX)

    def begin(self, ns: LocalNamespace, key: BlockKey) -> LocalWriter:
        """Creates the writer of a block."""
        keep_max = self.small_bytes_max if self.is_small(key.path, 0) else -1
        return LocalWriter(
            self,
            ns,
            f"block {key.path} in {key.namespace}",
            keep_max,
            lambda body: self.keep(ns, key, body),
            lambda draft: self.place(ns, key, draft),
            takes_reserve=key.path.startswith(METADATA_PREFIX),
        )

    def begin_replacement(self, ns: LocalNamespace, key: BlockKey) -> LocalWriter:
        """Creates the writer of a file that takes the place of the one of its name."""
        target = ns.file(key.path)

        async def replace(draft: Draft) -> None:
            await self.threads.run(lambda: self._replace(draft, target))

        return LocalWriter(
            self,
            ns,
            f"block {key.path} in {key.namespace}",
            -1,
            lambda body: self.keep(ns, key, body),
            replace,
        )

    def _replace(self, draft: Draft, target: tuple[str, ...]) -> None:
        draft.replace(target)
        self.tree.sync_dir(target[:-1])

    async def keep(self, ns: LocalNamespace, key: BlockKey, body: bytes) -> None:
        """Makes a small body visible and durable.

        Raises:
            TarnError: UNAVAILABLE: the disk is full.
        """
        if not await self.begin_keep(ns, key, body):
            raise BlockExistsError(key)

    def begin_keep(self, ns: LocalNamespace, key: BlockKey, body: bytes) -> Awaitable[int]:
        """As `keep`, for a caller that awaits the answer at once; 0: the block exists."""
        path = key.path
        self.reserve.check(f"write block {path} in {key.namespace}")
        return self._group_writer.insert(ns.number, path, f"{ns.name}/{path}", body)

    async def place(
        self, ns: LocalNamespace, key: BlockKey, source: Source, *, is_shared: bool = False
    ) -> None:
        """Makes a synced file visible and durable under a block's name.

        Args:
            ns: the namespace.
            key: the block's name.
            source: the file.
            is_shared: whether another call may find the file and acknowledge it, as completions of one
                upload do. If its directory cannot be synced, a shared file stays and any other is removed.
        """
        target = ns.file(key.path)
        if key.path.startswith(METADATA_PREFIX):
            if not await self.threads.run(lambda: self._place_metadata(source, target)):
                raise BlockExistsError(key)
            return
        if not await self._group_writer.place(ns.number, key.path, lambda: source.link(target)):
            raise BlockExistsError(key)
        await self.threads.run(lambda: self._confirm(target, len(ns.names), is_shared=is_shared))

    def _place_metadata(self, source: Source, target: tuple[str, ...]) -> bool:
        for attempt in range(1, _LINK_ATTEMPTS + 1):
            try:
                source.link(target)
            except FileExistsError:
                try:
                    if not self._make_young(source, target):
                        return False
                except FileNotFoundError:  # a collection removed it just now
                    if attempt == _LINK_ATTEMPTS:
                        raise
                    continue
            break
        self.tree.sync_dir(target[:-1])  # the other writer may not have synced it yet
        return True

    def _make_young(self, source: Source, target: tuple[str, ...]) -> bool:
        """Gives an existing file the time of now, durably; returns False if it has other bytes.

        The time is that of the clock that dates all blocks: the kernel's own, which dates files by ticks, may
        lie behind it. A file never becomes older, also where the clock was set back.
        """
        other = self.tree.open_read(target)
        try:
            if not source.equals(other):
                return False
            time_ns = max(self.drafts.clock.now_us() * 1000, os.fstat(other).st_mtime_ns)
            os.utime(other, ns=(time_ns, time_ns))
            self.tree.sync_times(other)
        finally:
            os.close(other)
        return True

    def _confirm(self, target: tuple[str, ...], keep: int, *, is_shared: bool) -> None:
        try:
            self.tree.sync_dir(target[:-1])
        except OSError:
            if not is_shared:
                self.tree.remove(target, keep)  # no other call reads this writer's address
            raise


class LocalWriter:
    """A `BlockWriter`. It holds up to 256 KiB in memory and switches to a draft above that, or when all hold too much.

    Args:
        intake: the store's.
        ns: the namespace.
        what: names the block in errors.
        keep_max: bodies up to this size are passed to `keep`; -1 passes all to `place`.
        keep: stores a whole small body.
        place: links a sealed draft.
        receipt: identifies a part, see `PartWriter`.
        takes_reserve: whether the body may take the last space of the disk (`tarn.block.local.reserve`).
    """

    def __init__(
        self,
        intake: Intake,
        ns: LocalNamespace,
        what: str,
        keep_max: int,
        keep: Callable[[bytes], Awaitable[None]],
        place: Callable[[Draft], Awaitable[None]],
        receipt: str = "",
        *,
        takes_reserve: bool = False,
    ) -> None:
        self.receipt = receipt
        self._what = what
        self._takes_reserve = takes_reserve
        self._intake = intake
        self._ns = ns
        self._faults = Faults(f"write {what}")
        self._keep_max = keep_max
        self._keep = keep
        self._place = place
        self._held = bytearray()
        self._held_bytes = 0  # of them in the sum of all writers
        self._draft: Draft | None = None
        self._counted = False  # whether the draft is in the count of open files
        self._ended = False
        intake.writers.add(self)

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `BlockWriter.write`. After a failure only `abort` is allowed."""
        self._check()
        with memoryview(data).cast("B") as view:
            if self._may_hold(len(view)):
                self._held += view
                self._intake.held_bytes += len(view)
                self._held_bytes += len(view)
                return
            with self._intake.guard, self._faults:
                self._count()
                await self._intake.threads.run(lambda: self._spill(view))
            self._let_go()

    async def write_by_thread(self, work: Callable[[Append, int], T]) -> T:
        """See `ThreadWriter.write_by_thread`. After a failure only `abort` is allowed."""
        self._check()
        with self._intake.guard, self._faults:
            self._count()
            found = await self._intake.threads.run(lambda: work(self._spill, THREAD_TURN_BYTES))
        self._let_go()
        return found

    async def finish(self) -> None:
        """See `BlockWriter.finish`. A failure has aborted the writer."""
        await self.finish_with(b"")

    async def finish_with(self, last: bytes | bytearray | memoryview) -> None:
        """Writes the last bytes and finishes, in one call of a thread."""
        self._check()
        try:
            with self._intake.guard, self._faults, memoryview(last).cast("B") as view:
                if self._draft is None and len(self._held) + len(view) <= self._keep_max:
                    await self._keep(bytes(self._held + view))
                else:
                    self._count()
                    draft = await self._intake.threads.run(lambda: self._seal(view))
                    await self._place(draft)
        finally:
            await self.abort()

    async def abort(self) -> None:
        """See `BlockWriter.abort`. After a success it only removes the draft's own name."""
        self._ended = True
        self._held = bytearray()
        self._let_go()
        self._intake.writers.discard(self)
        draft, self._draft = self._draft, None
        try:
            if draft is not None:
                with suppress(OSError):  # `sweep` removes it later
                    await self._intake.threads.run(draft.discard)
        finally:
            if self._counted:
                self._counted = False
                self._intake.files.give()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.abort()

    def _may_hold(self, count: int) -> bool:
        is_full = self._intake.held_bytes + count > HELD_BYTES_MAX
        return not is_full and len(self._held) + count <= max(_HOLD_BYTES, self._keep_max)

    def _let_go(self) -> None:
        """Takes the bytes that are not held any more off the sum of all writers."""
        self._intake.held_bytes -= self._held_bytes
        self._held_bytes = 0

    def _check(self) -> None:
        if self._ended:
            raise RuntimeError("the writer was finished or aborted")

    def _count(self) -> None:
        if not self._counted:
            self._intake.files.take()
            self._counted = True

    def _spill(self, data: memoryview) -> None:
        self._drafted(data)

    def _drafted(self, data: memoryview) -> Draft:
        if not self._takes_reserve:
            self._intake.reserve.check(f"write {self._what}")
        if self._draft is None:
            self._draft = self._intake.drafts.create(self._ns.names)
        if self._held:
            self._draft.write(self._held)
            self._held = bytearray()
        if data:
            self._draft.write(data)
        return self._draft

    def _seal(self, last: memoryview) -> Draft:
        draft = self._drafted(last)
        draft.seal()
        return draft

"""Writes the history of a repository of lakeFS into a storage namespace of Tarn (docs/design/history-from-lakefs.md).

Commit by commit, parents first: what a commit changes in the listing of its first parent is applied to Tarn's listing
of that parent. New objects are copied before the listing that names them is written, and that before the commit. Each
step is durable before the state records it, so the import may be killed at any point and goes on.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tarn.aio.first_error import collapse_error_groups
from tarn.block.committed import Committed
from tarn.block.port import BlockKey, BlockStore
from tarn.core.clock import Clock, IdSource
from tarn.core.commit import Commit, commit_id_of, commit_path, note_path, to_json
from tarn.core.dump import from_line, to_line
from tarn.core.entry import TOMBSTONE, Entry, pack, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import (
    BranchId,
    CommitId,
    MetarangeId,
    physical_path,
)
from tarn.lakefs.conversion import checksum_of, commit_from, entry_from
from tarn.lakefs.history import PeerHistory
from tarn.lakefs.records import PeerCommit, PeerEntry
from tarn.lakefs.sstable import damaged
from tarn.lakefs.state import CopiedBlock, PeerRef, WrittenListing

__all__ = ["HistoryImport"]

_BATCH: Final = 1000
"""Objects whose entries are made at a time."""
_COPIES: Final = 32
"""Objects that are copied at a time."""
_TRIES: Final = 5
_PAUSE_SECONDS: Final = 1.0
_SMALL_BYTES: Final = 1 << 20
"""Larger objects are copied in chunks."""
_HASHED_AT_ONCE: Final = 64 << 10
"""More bytes are hashed in a thread, because that takes longer than to get there."""


class HistoryImport:
    """One import.

    Args:
        history: what is imported; its dump is loaded.
        blocks: Tarn's block store.
        committed: Tarn's listings there.
        namespace: the storage namespace to fill; no repository has it.
        clock, ids: of the addresses of blocks, and of waits.
        expires_missing: commits of which objects are gone come over as expired ones; False: they end the import.
    """

    def __init__(
        self,
        history: PeerHistory,
        blocks: BlockStore,
        committed: Committed,
        namespace: str,
        clock: Clock,
        ids: IdSource,
        *,
        expires_missing: bool = False,
    ) -> None:
        self._history = history
        self._state = history.state
        self._blocks = blocks
        self._committed = committed
        self._namespace = namespace
        self._clock = clock
        self._ids = ids
        self._expires_missing = expires_missing
        self.progress = history.progress

    async def require_empty(self) -> None:
        """Checks before the first write that nothing is in the namespace; a repetition does nothing.

        Raises:
            TarnError: INVALID: something is there.
        """
        if self._state.get("is_empty"):
            return
        if await self._blocks.list_page(self._namespace, "", "", 1):
            text = f"storage namespace {self._namespace} is not empty; name another one by --storage-namespace"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        self._state.set("is_empty", "yes")

    # ---- commits

    async def write(self) -> AsyncGenerator[None, None]:
        """Writes the commits that are not written yet, and yields after each one.

        Raises:
            TarnError: CORRUPT: an object or a listing is damaged, or not there; INVALID: Tarn cannot have a path or a
                commit; errors of the source and of the block store.
        """
        for commit in self._history.pending():
            self.progress.step = f"commit {commit.commit_id[:12]}"
            await self._write_commit(commit)
            self.progress.commits_done += 1
            yield

    async def _write_commit(self, commit: PeerCommit) -> None:
        parents = [self._parent(commit, each) for each in commit.parents]
        listing = await self._listing(commit)
        ref = self._state.ref_at(commit.commit_id) if listing.gone else None
        if ref is not None:
            text = (
                f"{listing.gone} objects of {ref.kind} {ref.name} are gone in lakeFS; delete them there and commit, or "
                "delete the tag, and import a new dump into another folder (--work)"
            )
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
        try:
            made = commit_from(commit, parents, MetarangeId(listing.metarange_id))
        except ValueError as error:
            text = f"commit {commit.commit_id} of lakeFS cannot be brought over: {error}"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text) from error
        key = BlockKey(self._namespace, commit_path(commit_id_of(made)))
        await self._blocks.put(key, to_json(made))
        self._state.set_line(commit.commit_id, to_line(made), is_expired=listing.gone > 0)

    def _parent(self, commit: PeerCommit, peer_id: str) -> tuple[CommitId, Commit]:
        line = self._state.line(peer_id)
        if line is None:
            text = f"its parent {peer_id} is not of an earlier generation"
            raise damaged(f"commit {commit.commit_id}", text)
        found = from_line(line)
        assert isinstance(found, Commit), "the state has lines of commits"
        return commit_id_of(found), found

    async def _listing(self, commit: PeerCommit) -> WrittenListing:
        """Returns Tarn's listing of a commit; builds it if it is not written."""
        found = self._state.listing(commit.metarange_id)
        if found is not None:
            return found
        base = self._state.listing(self._history.base_of(commit))
        gone = _Gone(0 if base is None else base.gone)
        built = await self._committed.build(
            self._namespace,
            None if base is None else MetarangeId(base.metarange_id),
            [self._layer(commit, gone)],
        )
        made = WrittenListing(built.metarange_id, gone.count)
        self._state.set_listing(commit.metarange_id, made)
        return made

    async def _layer(self, commit: PeerCommit, gone: _Gone) -> AsyncGenerator[pa.RecordBatch, None]:
        """Yields the changes of a commit as rows of Tarn, after copying their objects; counts those that are gone."""
        begun_with_gone = gone.count > 0
        async with aclosing(self._history.changes(commit)) as batches:
            async for batch in batches:
                copies = await self._copied([each.new for each in batch if each.new is not None])
                values = []
                for change in batch:
                    if begun_with_gone and change.old is not None:
                        before = self._state.block(change.old.address)
                        gone.count -= before is not None and before.is_gone
                    if change.new is None:
                        values.append(TOMBSTONE)
                        continue
                    copy = copies[change.new.address]
                    gone.count += copy.is_gone
                    made, is_whole = entry_from(change.new, copy)
                    self.progress.headers_left_out += not is_whole
                    values.append(pack(made))
                paths = pa.array([each.path for each in batch], pa.string())
                yield pa.record_batch(
                    [paths, pa.array(values, pa.binary())], names=["path", "value"]
                )

    # ---- objects

    async def _copied(self, entries: list[PeerEntry]) -> dict[str, CopiedBlock]:
        """Returns the copies of objects by their addresses; copies those that are missing."""
        found: dict[str, CopiedBlock] = {}
        missing: dict[str, PeerEntry] = {}
        for each in entries:
            known = self._state.block(each.address)
            if known is None:
                missing.setdefault(each.address, each)
            else:
                found[each.address] = known
        room = asyncio.Semaphore(_COPIES)

        async def copy(entry: PeerEntry) -> None:
            async with room:
                found[entry.address] = await self._copy(entry)

        with collapse_error_groups(prefer=TarnError):
            async with asyncio.TaskGroup() as group:
                for each in missing.values():
                    group.create_task(copy(each))
        for each in entries:
            _compare(each, found[each.address])  # several entries may name one address
        return found

    async def _copy(self, entry: PeerEntry) -> CopiedBlock:
        for attempt in range(_TRIES):
            try:
                return await self._copy_once(entry)
            except TarnError as error:
                if error.kind is Kind.NOT_FOUND:
                    return self._gone(entry, error)
                if error.kind is not Kind.UNAVAILABLE or attempt == _TRIES - 1:
                    raise
                await self._clock.sleep(_PAUSE_SECONDS * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _gone(self, entry: PeerEntry, error: TarnError) -> CopiedBlock:
        """Records that an object is gone, under an address that no block has."""
        if not self._expires_missing:
            text = (
                "is gone; lakeFS's garbage collection may have deleted it. --expire-missing brings such commits over "
                "as expired ones, without their objects"
            )
            raise _differs(entry, text) from error
        # Never the MD5 of the object: if it was written again, the new entry must not be taken for the same one.
        md5 = hashlib.md5(b"gone" + entry.address.encode()).digest()  # noqa: S324
        copied = CopiedBlock(self._ids.uuid7(), entry.size, md5, is_gone=True)
        self._state.set_block(entry.address, copied)
        self.progress.gone += 1
        return copied

    async def _copy_once(self, entry: PeerEntry) -> CopiedBlock:
        """Copies an object, and compares size and MD5 before anything refers to the copy."""
        address, md5 = self._ids.uuid7(), hashlib.md5()  # noqa: S324 - an ETag, no secret
        key = BlockKey(self._namespace, physical_path(address))
        async with aclosing(self._body(entry, md5)) as chunks:
            if entry.size <= _SMALL_BYTES:
                (body,) = [chunk async for chunk in chunks]
                await self._blocks.put(key, body)
            else:
                async with await self._blocks.open_write(key) as writer:
                    async for chunk in chunks:
                        await writer.write(chunk)
                    await writer.finish()
        copied = CopiedBlock(address, entry.size, md5.digest())
        self._state.set_block(entry.address, copied)
        self.progress.objects += 1
        self.progress.size_bytes += entry.size
        return copied

    async def _body(self, entry: PeerEntry, md5: hashlib._Hash) -> AsyncGenerator[bytes, None]:
        """Yields the bytes of an object, a small one as a whole.

        Raises:
            TarnError: CORRUPT, before the end, if they are not those of the entry; NOT_FOUND; UNAVAILABLE.
        """
        size = 0
        async with aclosing(self._chunks(entry)) as chunks:
            async for chunk in chunks:
                size += len(chunk)
                if size > entry.size:
                    raise _differs(entry, f"has more than {entry.size} bytes")
                if len(chunk) > _HASHED_AT_ONCE:
                    await asyncio.to_thread(md5.update, chunk)
                else:
                    md5.update(chunk)
                yield chunk
        self.progress.unverified += not _compare(entry, CopiedBlock(b"", size, md5.digest()))

    def _chunks(self, entry: PeerEntry) -> AsyncGenerator[bytes, None]:
        source = self._history.source
        if entry.size > _SMALL_BYTES:
            return source.stream(entry.address)

        async def whole() -> AsyncGenerator[bytes, None]:
            # One byte more shows that there are more.
            yield await source.read(entry.address, 0, entry.size + 1)

        return whole()

    # ---- the end

    async def write_notes(self) -> None:
        """Writes the notes of the branches beside their commits, from which `tarn repo recover` finds them."""
        for ref in self._state.refs("branch"):
            commit_id, commit = self._written(ref)
            time_us = commit.create_time_us
            note = {"branch": ref.name, "commit_id": commit_id, "time_us": time_us}
            path = note_path(BranchId(ref.name), time_us, commit_id)
            await self._blocks.put(BlockKey(self._namespace, path), json.dumps(note).encode())

    def _written(self, ref: PeerRef) -> tuple[CommitId, Commit]:
        line = self._state.line(ref.peer_id)
        assert line is not None, "all wanted commits are written"
        commit = from_line(line)
        assert isinstance(commit, Commit), "the state has lines of commits"
        return commit_id_of(commit), commit

    def heads(self, kind: str) -> Iterator[tuple[str, tuple[CommitId, Commit]]]:
        """Yields the names of all branches, or tags, and their written commits."""
        for ref in self._state.refs(kind):
            yield ref.name, self._written(ref)

    async def verify(self) -> int:
        """Reads the listing of each branch and tag on both sides, and compares their digests; returns their number.

        Raises:
            TarnError: CORRUPT: two listings differ.
        """
        refs = [*self._state.refs("branch"), *self._state.refs("tag")]
        done: set[str] = set()
        for ref in refs:
            self.progress.step = f"verifying {ref.name}"
            record = self._history.commit(ref.peer_id)
            listing = self._written(ref)[1].metarange_id
            if record.metarange_id in done:
                continue
            theirs, ours = (
                await self._their_digest(record.metarange_id),
                await self._digest(listing),
            )
            if theirs != ours:
                text = (
                    f"the listing of {ref.kind} {ref.name} has other content in Tarn than in lakeFS (digest {ours} "
                    f"instead of {theirs}); the repository stays invisible. This is a bug of the import: report it"
                )
                raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
            done.add(record.metarange_id)
        return len(refs)

    async def _their_digest(self, metarange_id: str) -> str:
        digest = hashlib.sha256()
        async with aclosing(self._history.entries(metarange_id)) as entries:
            async for path, entry in entries:
                block = self._state.block(entry.address)
                if block is None:
                    raise damaged(f"listing {metarange_id}", f"{path[:80]!a} was not copied")
                etag = entry.etag if checksum_of(entry.etag) else block.md5.hex()
                made, _ = entry_from(entry, block)
                digest.update(_line(path, entry.size, etag.strip('"').lower(), made))
        return digest.hexdigest()

    async def _digest(self, metarange_id: MetarangeId) -> str:
        digest, start = hashlib.sha256(), ""
        while True:
            paths, values = await self._committed.page(self._namespace, metarange_id, start, _BATCH)
            for path, value in zip(paths, values, strict=True):
                entry = unpack(value)
                digest.update(_line(path, entry.size, entry.etag, entry))
            if len(paths) < _BATCH:
                return digest.hexdigest()
            start = paths[-1] + "\0"


@dataclass(slots=True)
class _Gone:
    """The number of objects of a listing that are gone."""

    count: int


def _line(path: str, size: int, etag: str, entry: Entry) -> bytes:
    return repr((path, size, etag, entry.content_type, entry.metadata)).encode() + b"\n"


def _compare(entry: PeerEntry, block: CopiedBlock) -> bool:
    """Compares the bytes of an object with its entry; returns whether the entry has a checksum of them.

    Raises:
        TarnError: CORRUPT: they differ.
    """
    if block.size != entry.size:
        raise _differs(entry, f"has {block.size} bytes instead of {entry.size}")
    expected = checksum_of(entry.etag)
    if expected is None or expected.parts or block.is_gone:
        return False
    if expected.md5 != block.md5:
        raise _differs(entry, f"has the MD5 {block.md5.hex()} instead of {entry.etag}")
    return True


def _differs(entry: PeerEntry, why: str) -> TarnError:
    text = f"the object at {entry.address[:300]!a} in lakeFS {why}"
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)

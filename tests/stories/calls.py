"""What the actors of a story call, and the answers in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

from lake import MAIN, Lake
from lake_parts import listing
from tests.stories.script import StoryError
from tests.stories.told_kv import ACTOR
from tests.stories.words import Names, answer_of, listed

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.core.branch import Token
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.entry import Entry, pack, unpack
from tarn.core.errors import TarnError
from tarn.core.ids import BranchId, CommitId, physical_path
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.compaction.compacting import CompactionOutcome
from tarn_graveler.uploads.state import NewUpload
from tarn_graveler.versioning.merges import MergeRequest

__all__ = ["Calls"]

_COMPACTED: Final = {
    CompactionOutcome.COMPACTED: "compacted",
    CompactionOutcome.SUPERSEDED: "given up: another operation changed the branch",
}


class Calls:
    """Calls of one repository. An object is known by its size."""

    def __init__(self, blocks: MemBlockStore, names: Names) -> None:
        self._blocks = blocks
        self._names = names
        self._uploads: dict[str, str] = {}
        self._count = 0

    def begin(self, lake: Lake, what: str) -> Coroutine[Any, Any, str]:
        """Returns the call that a story names; its result is the answer.

        Raises:
            StoryError: there is no such call.
        """
        for pattern, method in _CALLS:
            found = pattern.fullmatch(what)
            if found:
                return self._answer(method(self, lake, **found.groupdict()))
        raise StoryError(f"no such call: {what}")

    async def _answer(self, work: Coroutine[Any, Any, str]) -> str:
        try:
            return await work
        except TarnError as error:
            return answer_of(error, self._names)

    async def _new(self, lake: Lake, size: int, operation: str = "") -> bytes:
        """Writes a block of `size` bytes; returns the entry that names it."""
        self._count += 1
        now_ms = lake.clock.now_us() // 1000
        address = now_ms.to_bytes(6, "big") + self._count.to_bytes(10, "big")
        key = BlockKey(lake.repository.storage_namespace, physical_path(address))
        await self._blocks.put(key, bytes(size))
        return pack(Entry(size, 0, address, size.to_bytes(16, "big"), operation_id=operation))

    async def put(self, lake: Lake, path: str, size: str, branch: str | None) -> str:
        packed = await self._new(lake, int(size))
        name = lake.branch(BranchId(branch or MAIN))
        await lake.graveler.staging.stage(name, path, packed, is_new=True)
        return "acknowledged"

    async def create(self, lake: Lake, path: str, size: str, branch: str | None) -> str:
        # A repetition by its client has the operation id of the first attempt.
        packed = await self._new(lake, int(size), f"{ACTOR.get()} puts {path} = {size}")
        name, absent = lake.branch(BranchId(branch or MAIN)), WriteCondition(if_none_match=True)
        await lake.graveler.conditional.stage(name, path, packed, absent)
        return "acknowledged"

    async def delete(self, lake: Lake, path: str) -> str:
        (error,) = await lake.delete(path)
        if error is not None:
            raise error
        return "acknowledged"

    async def get(self, lake: Lake, path: str, ref: str | None) -> str:
        size = await lake.get(path, ref or "main")
        return f"there is no {path}" if size is None else f"{path} = {size}"

    async def read(self, lake: Lake, path: str) -> str:
        packed = await lake.graveler.reading.lookup(lake.repository, "main", path)
        entry = unpack(packed)
        key = BlockKey(lake.repository.storage_namespace, physical_path(entry.address))
        try:
            await self._blocks.stat(key)
        except BlockNotFoundError:
            return f"{path} = {entry.size}, but its block is gone: its bytes are lost"
        return f"{path} = {entry.size}, and its {entry.size} bytes"

    async def copy(self, lake: Lake, source: str, path: str) -> str:
        packed = await lake.graveler.copy_sources.find(lake.repository, "main", source)
        entry = replace(unpack(packed), mtime_us=1)
        await lake.graveler.staging.stage(lake.main, path, pack(entry))
        return "acknowledged"

    async def show(self, lake: Lake, ref: str | None) -> str:
        return listed(sorted((await listing(lake, ref or "main")).items()))

    async def commit(self, lake: Lake, branch: str | None) -> str:
        name = lake.branch(BranchId(branch or MAIN))
        request = CommitRequest(ACTOR.get(), "")
        made = await lake.graveler.committing.commit(name, request)
        return await self._holds(lake, "committed", made.commit_id)

    async def _holds(self, lake: Lake, verb: str, commit_id: CommitId) -> str:
        held = listed(sorted((await listing(lake, commit_id)).items()))
        return f"{verb} as {self._names.commit(commit_id)}, which holds {held}"

    async def merge(self, lake: Lake, source: str, branch: str) -> str:
        head = await lake.graveler.refs.commit_of(lake.repository, source)
        request = MergeRequest(head, ACTOR.get(), "")
        made = await lake.graveler.merges.merge(lake.branch(BranchId(branch)), request)
        return await self._holds(lake, "merged", made.commit_id)

    async def compact(self, lake: Lake) -> str:
        done = await lake.graveler.compacting.compact(lake.main)
        return _COMPACTED.get(done.outcome, done.outcome.value)

    async def create_branch(self, lake: Lake, branch: str, source: str) -> str:
        head = await lake.graveler.refs.commit_of(lake.repository, source)
        await lake.graveler.branches.create(lake.branch(BranchId(branch)), head)
        return "created"

    async def delete_branch(self, lake: Lake, branch: str) -> str:
        name = lake.branch(BranchId(branch))

        async def announce(tokens: Sequence[Token]) -> None:
            await lake.graveler.drops.announce(name, tokens)

        await lake.graveler.branches.delete(name, announce)
        return "deleted"

    async def restore_branch(self, lake: Lake, branch: str) -> str:
        deletion = await lake.graveler.reflog.deletion(lake.repository, BranchId(branch))
        assert deletion is not None
        assert deletion.old_commit_id is not None
        name = lake.branch(BranchId(branch))
        await lake.graveler.branches.create(name, deletion.old_commit_id, undone=deletion)
        return "restored"

    async def begin_upload(self, lake: Lake, path: str) -> str:
        new = NewUpload(MAIN, path, b"", ACTOR.get(), "", is_full_object_checksum=False)
        made = await lake.graveler.uploads.create(lake.repository, new)
        self._uploads[path] = made.upload_id
        return "begun"

    async def complete_upload(self, lake: Lake, path: str, size: str) -> str:
        uploads, upload_id = lake.graveler.uploads, self._uploads[path]
        claim = await uploads.begin_complete(lake.repository, upload_id, bytes(32))
        if claim.completed_entry:
            return "acknowledged: it was complete already"
        packed = await self._new(lake, int(size), upload_id)
        await uploads.finish_complete(
            lake.repository, upload_id, claim.op_id, packed, UNCONDITIONAL
        )
        return "acknowledged"


_ON: Final = r"(?: on (?P<branch>\w+))?"
_CALLS: Final[Sequence[tuple[re.Pattern[str], Callable[..., Coroutine[Any, Any, str]]]]] = [
    (re.compile(pattern), method)
    for pattern, method in (
        (rf"put (?P<path>\S+) = (?P<size>\d+){_ON}", Calls.put),
        (rf"put (?P<path>\S+) = (?P<size>\d+) if there is none{_ON}", Calls.create),
        (r"delete branch (?P<branch>\w+)", Calls.delete_branch),
        (r"delete (?P<path>\S+)", Calls.delete),
        (r"get (?P<path>\S+)(?: at (?P<ref>\S+))?", Calls.get),
        (r"read the bytes of (?P<path>\S+)", Calls.read),
        (r"copy (?P<source>\S+) to (?P<path>\S+)", Calls.copy),
        (r"list(?: (?P<ref>\S+))?", Calls.show),
        (r"merge (?P<source>\w+) into (?P<branch>\w+)", Calls.merge),
        (rf"commit{_ON}", Calls.commit),
        (r"compact", Calls.compact),
        (r"create branch (?P<branch>\w+) from (?P<source>\w+)", Calls.create_branch),
        (r"restore branch (?P<branch>\w+)", Calls.restore_branch),
        (r"begin an upload of (?P<path>\S+)", Calls.begin_upload),
        (r"complete the upload of (?P<path>\S+) = (?P<size>\d+)", Calls.complete_upload),
    )
]

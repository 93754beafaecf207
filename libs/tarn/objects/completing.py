"""Ends multipart uploads.

The upload is claimed first (docs/design/protocol.md, "Uploads"): of two concurrent completions one proceeds
and the other waits. A completion that is repeated with the same parts gets the first answer and stages
nothing. Under the claim, the front compares the client's list with the recorded parts, the parts become one
block, and graveler stages the entry and keeps the answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.entry import Entry, pack, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.part_list import PartList, parts_to_keep
from tarn.core.quota import is_quota_exceeded
from tarn.objects.backend import VIEW_MOVED, Caller, ObjectBackend
from tarn.objects.bodies import LostBytesError, digest_block
from tarn.objects.uploads import discard_parts, upload_block
from tarn_proto.graveler.v1 import upload_service_pb2 as pb

__all__ = ["Completed", "PlannedObject", "complete_upload"]

_UNCERTAIN: Final = frozenset(
    {Kind.UNKNOWN_OUTCOME, Kind.DEADLINE, Kind.UNAVAILABLE, Kind.INTERNAL, Kind.CORRUPT}
)
"""After these kinds of error it is unknown whether the entry was staged. The claim is given up, but the upload is not
open again: the client tries again, and graveler returns the answer, or lets the new completion take over."""

_PARTS_PAGE: Final = 1000
_TRIES: Final = 3
_PAUSE_S: Final = 0.2

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """What parts make.

    Attributes:
        parts: in the order of the object, at least one.
        entry: of the object, without its time and its parts.
        kept: the parts as the entry keeps them.
    """

    parts: Sequence[pb.UploadPart]
    entry: Entry
    kept: PartList


Plan = Callable[[Mapping[int, pb.UploadPart]], PlannedObject]
"""Makes the object of the recorded parts, by their numbers. It raises the front's errors if the client's list is wrong;
nothing is staged then, and the upload stays open."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The end of an upload.

    Attributes:
        entry: the object.
        is_repeat: whether it was completed before, with the same parts.
    """

    entry: Entry
    is_repeat: bool


async def complete_upload(
    backend: ObjectBackend,
    caller: Caller,
    repository_id: str,
    upload: pb.Upload,
    manifest_hash: bytes,
    plan: Plan,
    condition: WriteCondition = UNCONDITIONAL,
) -> Completed:
    """Joins the parts of an upload to an object, and stages it once.

    Args:
        backend: the shared resources.
        caller: may write the upload's path.
        repository_id: of the upload.
        upload: open or completed.
        manifest_hash: SHA-256 over the part numbers and ETags that the client listed.
        plan: see `Plan`; not called for a repetition.
        condition: must hold for the path immediately before the write.

    Raises:
        LostBytesError: the bytes of a recorded part are missing.
        TarnError: UPLOAD_PART_INVALID: an earlier completion joined other parts; UPLOAD_NOT_FOUND; UPLOAD_BUSY;
            OUTCOME_UNKNOWN; the condition does not hold; other errors of graveler and of the store.
        Exception: the errors of the plan.
    """
    claim = backend.ids.nonce()
    completion = _Completion(backend, caller, repository_id, upload, claim)
    if done := await completion.begin(manifest_hash):
        return Completed(unpack(done), is_repeat=True)
    entry = await completion.run(plan, condition)
    await discard_parts(backend, upload)
    return Completed(entry, is_repeat=False)


@dataclass(frozen=True, slots=True)
class _Completion:
    """A completion under one claim, of 16 bytes."""

    backend: ObjectBackend
    caller: Caller
    repository_id: str
    upload: pb.Upload
    claim: bytes

    async def begin(self, manifest_hash: bytes) -> bytes:
        """Claims the upload, or returns the packed entry of an earlier completion with the same parts. It is repeated,
        because a claim whose answer is lost blocks the upload until it is old."""
        backend, upload_id = self.backend, self.upload.upload_id
        for attempt in range(1, _TRIES + 1):
            try:
                call = await backend.proven_call(self.caller)
                begun = await backend.graveler.begin_complete_upload(
                    call, self.repository_id, upload_id, manifest_hash, self.claim
                )
            except TarnError as error:
                if error.kind not in _UNCERTAIN or error.reason is Reason.UPLOAD_BUSY:
                    raise
                if attempt == _TRIES:
                    await self._give_up(may_be_staged=True)
                    raise
                _log.info("upload claimed again", upload_id=upload_id, error=error.message)
            else:
                return begun.completed_entry
            await backend.clock.sleep(_PAUSE_S * attempt)
        raise AssertionError("the last try returns or raises")

    async def run(self, plan: Plan, condition: WriteCondition) -> Entry:
        """Runs all steps under the claim, which is given up if they fail."""
        try:
            planned = plan(await self._recorded_parts())
            entry = dataclasses.replace(
                planned.entry,
                mtime_us=self.backend.clock.now_us(),
                operation_id=self.upload.upload_id,
            )
            await self._join(planned.parts, entry)
        except Exception:  # also one of the front's own errors
            await self._give_up(may_be_staged=False)
            raise
        packed = pack(entry)
        await self._finish(packed, parts_to_keep(packed, planned.kept), condition)
        return entry

    async def _join(self, parts: Sequence[pb.UploadPart], entry: Entry) -> None:
        """Joins the parts to one block.

        Another completion may have done this step, and stopped or lost its claim since; the store then keeps the
        existing block. That block is accepted only after its bytes were compared, because the client may have replaced
        a part.

        Raises:
            LostBytesError: bytes are missing.
            TarnError: UPLOAD_PART_INVALID if the block was made of other parts; an error of the store;
                UPLOAD_NOT_FOUND: the upload has ended meanwhile, and its parts with it.
        """
        backend, upload = self.backend, self.upload
        key = upload_block(upload)
        names = [(part.part_number, part.attempt) for part in parts]
        try:
            joined = await backend.blocks.uploads.complete(key, upload.upload_id, names)
        except BlockNotFoundError as error:
            await backend.graveler.get_upload(
                backend.call(self.caller),
                self.repository_id,
                upload.branch_id,
                upload.path,
                upload.upload_id,
            )
            _log.error("recorded part lost", upload_id=upload.upload_id, error=error.message)
            text = "The data of a part is missing; begin a new upload."
            raise LostBytesError(text) from error
        if joined.was_there:
            await self._compare_parts(key, parts, joined.size)
        if joined.size != entry.size:
            text = f"upload {upload.upload_id} became {joined.size} bytes instead of {entry.size}"
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)

    async def _compare_parts(
        self, key: BlockKey, parts: Sequence[pb.UploadPart], size: int
    ) -> None:
        start = 0
        for part in parts:
            is_last = part is parts[-1]
            try:
                found = await digest_block(self.backend.blocks, key, part.size_bytes, start=start)
            except TarnError as error:
                if error.kind is not Kind.CORRUPT or isinstance(error, LostBytesError):
                    raise
                md5 = b""  # the block ends early
            else:
                md5 = found.md5
            start += part.size_bytes
            if md5 != part.md5 or (is_last and start != size):
                number = part.part_number
                text = f"An earlier completion joined another part {number}; begin a new upload."
                reason = Reason.UPLOAD_PART_INVALID
                raise TarnError(Kind.INVALID, reason, text, part_number=str(number))

    async def _finish(self, packed: bytes, kept: bytes, condition: WriteCondition) -> None:
        """Stages the entry under the claim. Safe to repeat under one claim with the same bytes. It is repeated,
        because most failures pass."""
        backend, upload_id = self.backend, self.upload.upload_id
        for attempt in range(1, _TRIES + 1):
            try:
                call = await backend.proven_call(self.caller, backend.bounds.complete_timeout_s)
                await backend.graveler.finish_complete_upload(
                    call, self.repository_id, upload_id, self.claim, packed, condition, kept
                )
            except TarnError as error:
                denied = error.kind in (Kind.DENIED, Kind.UNAUTHENTICATED)
                moved = error.reason in VIEW_MOVED
                if attempt > 1 and (denied or moved or is_quota_exceeded(error)):
                    # A permission, a rule, a limit or another target of the view refuses this attempt. An earlier one
                    # may still stage the entry, and its process may not have recorded that it tries.
                    await self._give_up(may_be_staged=True)
                    text = f"upload {upload_id} may have been completed before: {error.message}"
                    raise TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, text) from error
                if error.kind not in _UNCERTAIN:
                    await self._give_up(may_be_staged=False)
                    raise
                if error.reason is Reason.UPLOAD_BUSY:
                    raise
                if attempt == _TRIES:
                    await self._give_up(may_be_staged=True)
                    raise
                _log.info("upload completion repeated", upload_id=upload_id, error=error.message)
            else:
                return
            await backend.clock.sleep(_PAUSE_S * attempt)

    async def _give_up(self, *, may_be_staged: bool) -> None:
        """Gives up the claim, so that the next completion begins at once. By the repository, whatever the view shows by
        now: a call through a view that was pointed elsewhere is refused."""
        backend, upload_id = self.backend, self.upload.upload_id
        try:
            call = dataclasses.replace(await backend.proven_call(self.caller), bucket="")
            await backend.graveler.reopen_upload(
                call, self.repository_id, upload_id, self.claim, may_be_staged=may_be_staged
            )
        except TarnError as error:
            # The claim expires by itself; the client must see the original failure.
            _log.warning("claim not given up", upload_id=upload_id, error=error.message)

    async def _recorded_parts(self) -> dict[int, pb.UploadPart]:
        recorded: dict[int, pb.UploadPart] = {}
        after = 0
        while True:
            page = await self.backend.graveler.list_upload_parts(
                self.backend.call(self.caller),
                self.repository_id,
                self.upload.upload_id,
                after_part_number=after,
                page_size=_PARTS_PAGE,
            )
            recorded.update((part.part_number, part) for part in page.parts)
            if not page.is_truncated or not page.parts:
                return recorded
            after = page.parts[-1].part_number

"""Objects that a client writes to the bucket itself, and then links to a path (docs/design/links.md).

An issued address is an upload without parts: its record binds the address to a branch and a path, keeps the address
from collections, lets only one completion proceed, and keeps the answer. So an object is linked once, and a repeated
request never puts it over a newer one (docs/design/protocol.md, "Uploads").
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Final

import structlog

from tarn.block.port import (
    BlockExistsError,
    BlockKey,
    BlockNotFoundError,
    BlockStore,
    PresignedWrite,
    PresignsWrites,
)
from tarn.core.clock import Clock
from tarn.core.condition import WriteCondition
from tarn.core.entry import TIME_US_MAX, Entry, pack, unpack
from tarn.core.entry_check import OBJECT_BYTES_MAX, check_template
from tarn.core.entry_check import PARTS_MAX as OBJECT_PARTS_MAX
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, UserId, physical_path
from tarn.kv.records import Repository
from tarn_graveler.branch.object_events import TARN_ITSELF, Origin
from tarn_graveler.uploads.state import Claim, NewUpload, OpenUpload, Uploads
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = ["LINK_SECONDS", "PARTS_MAX", "IssuedAddress", "Links", "WrittenObject", "is_link"]

LINK_SECONDS: Final = 3600
"""Life of an issued address and its URLs."""
PARTS_MAX: Final = 1000
"""Parts for which URLs are issued: an answer stays below 1 MiB."""

_FINISH_TRIES: Final = 3
_FINISH_PAUSE_S: Final = 0.2
_ETAG = re.compile(r"([0-9a-f]{32})(?:-([1-9][0-9]{0,4}))?")
_UNCERTAIN: Final = frozenset(
    {Kind.UNKNOWN_OUTCOME, Kind.DEADLINE, Kind.UNAVAILABLE, Kind.INTERNAL, Kind.CORRUPT}
)
"""After these kinds of error it is unknown whether the entry was staged, so the claim is kept."""

_REFUSED_BLOCK: Final = frozenset({Reason.BLOCK_NOT_FOUND, Reason.LINK_MISMATCH})
"""What the store holds is not what the client says."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class IssuedAddress:
    """An issued address, and how to write to it."""

    upload: OpenUpload
    physical_address: str
    write: PresignedWrite


@dataclass(frozen=True, slots=True)
class WrittenObject:
    """The object that the client claims to have written.

    Attributes:
        size: bytes.
        etag: the bucket's, without quotes: 32 hex digits, with `-N` appended for N parts.
        mtime_us: when it was made, microseconds since the epoch; None: now.
    """

    size: int
    etag: str
    mtime_us: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.size <= OBJECT_BYTES_MAX:
            text = f"the size is 0 to {OBJECT_BYTES_MAX} bytes, not {self.size}"
            raise _invalid("size_bytes", text)
        found = _ETAG.fullmatch(self.etag)
        if found is None or int(found[2] or 0) > OBJECT_PARTS_MAX:
            text = (
                f"the ETag {self.etag[:80]!r} is not 32 hex digits, with -N appended for N parts, at most "
                f"{OBJECT_PARTS_MAX}"
            )
            raise _invalid("etag", text)
        if self.mtime_us is not None and not 0 <= self.mtime_us <= TIME_US_MAX:
            raise _invalid("modify_time", "modify_time is not a time of the years 1970 to 9999")

    @property
    def digest(self) -> bytes:
        """Identifies the claims of a request: 32 bytes."""
        return hashlib.sha256(f"{self.size}:{self.etag}".encode()).digest()

    def check(self, found_size: int, found_etag: str) -> None:
        """Compares the claims with the object in the bucket.

        Raises:
            TarnError: FAILED_PRECONDITION, LINK_MISMATCH.
        """
        is_other = found_etag not in ("", self.etag)
        if found_size != self.size or is_other:
            text = (
                f"the bucket holds {found_size} bytes with ETag {found_etag or '(none)'}, not {self.size} bytes with "
                f"ETag {self.etag}; nothing was linked"
            )
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.LINK_MISMATCH, text)

    def entry(self, upload: OpenUpload, address: bytes, now_us: int, template: bytes) -> Entry:
        """Returns the entry of the object at an address; `template` as in `Links.link`."""
        found = _ETAG.fullmatch(self.etag)
        assert found is not None, "checked when it was made"
        return replace(
            unpack(template or upload.record.template),
            size=self.size,
            mtime_us=now_us if self.mtime_us is None else self.mtime_us,
            address=address,
            md5=bytes.fromhex(found[1]),
            etag_parts=int(found[2] or 0),
            operation_id=upload.upload_id,
        )


def is_link(upload: OpenUpload) -> bool:
    """Whether an upload is an issued address."""
    return upload.record.link_until_us > 0


class Links:
    """Issues addresses, and links the objects that were written to them."""

    def __init__(self, uploads: Uploads, blocks: BlockStore, clock: Clock) -> None:
        self._uploads = uploads
        self._blocks = blocks
        self._clock = clock

    @property
    def binds_writes(self) -> bool:
        """Whether a client can write only once by the URL for one PUT that is issued here."""
        return isinstance(self._blocks, PresignsWrites) and self._blocks.binds_writes

    async def issue(
        self,
        repository: Repository,
        branch_id: BranchId,
        path: str,
        template: bytes,
        user_id: UserId,
        part_count: int,
        branch_incarnation: bytes = b"",
        *,
        is_copied: bool = False,
    ) -> IssuedAddress:
        """Issues an address for an object.

        Args:
            repository: the repository.
            branch_id: an existing branch.
            path: the path of the object.
            template: packed entry with content type and metadata.
            user_id: the caller.
            part_count: number of parts, at most `PARTS_MAX`; 0: one PUT.
            branch_incarnation: the life of the branch to which the address belongs; empty: any.
            is_copied: whether the link copies the object, because the client may write to this address again.

        Raises:
            TarnError: NOT_IMPLEMENTED: the block store is no bucket; INVALID; UNAVAILABLE.
        """
        if not isinstance(self._blocks, PresignsWrites):
            text = (
                "the block store of this installation is no bucket to which clients can write; "
                "write through the S3 endpoint"
            )
            raise TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, text)
        if not 0 <= part_count <= PARTS_MAX:
            text = f"part_count is 0 to {PARTS_MAX}, not {part_count}"
            raise _invalid("part_count", text)
        until_us = self._clock.now_us() + LINK_SECONDS * 1_000_000
        new = NewUpload(
            branch_id,
            path,
            template,
            user_id,
            link_until_us=until_us,
            branch_incarnation=branch_incarnation,
            is_copied=is_copied,
        )
        upload = await self._uploads.create(repository, new)
        key = _block_of(repository, upload)
        write = await self._blocks.presign_write(key, LINK_SECONDS, part_count)
        return IssuedAddress(upload, f"{key.namespace.rstrip('/')}/{key.path}", write)

    async def link(
        self,
        repository: Repository,
        upload: OpenUpload,
        written: WrittenObject,
        condition: WriteCondition,
        template: bytes = b"",
        *,
        origin: Origin = TARN_ITSELF,
    ) -> bytes:
        """Stages the object that was written to an issued address, once; returns its packed entry.

        Args:
            repository: of the address.
            upload: the issued address.
            written: what the client says that it wrote.
            condition: must hold immediately before the write.
            template: packed entry with content type and metadata; empty: that with which the address was issued.
            origin: for the journal.

        Raises:
            TarnError: FAILED_PRECONDITION: LINK_EXPIRED; LINK_USED: it is linked, as another object; LINK_MISMATCH;
                BLOCK_NOT_FOUND: nothing was written, and nothing linked; OUTCOME_UNKNOWN: the block is gone or another
                one, and an earlier request may have linked it; the errors of `Uploads.begin_complete` and
                `finish_complete`.
        """
        record, upload_id = upload.record, upload.upload_id
        if record.state == pb.UPLOAD_STATE_OPEN:
            check_template(
                record.template
            )  # a replica of an older release may have issued the address
        if record.state != pb.UPLOAD_STATE_COMPLETED:
            self._check_time(record)
            try:
                await self._check_block(repository, upload, written)
            except TarnError as error:
                if error.reason not in _REFUSED_BLOCK:
                    raise
                if not await self._is_linked(repository, upload_id):
                    raise
        elif record.manifest_hash != written.digest:
            text = "the address is linked already, as an object of another size or ETag; ask for a new one"
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.LINK_USED, text)
        claim = await self._uploads.begin_complete(repository, upload_id, written.digest)
        if claim.completed_entry:
            return claim.completed_entry
        if claim.linked_address:
            await self._copy(repository, upload, written, claim)
        address = claim.linked_address or record.address
        packed = pack(written.entry(upload, address, self._clock.now_us(), template))
        await self._finish(repository, upload_id, claim.op_id, packed, condition, origin)
        if claim.linked_address:
            await self._remove(_block_of(repository, upload))
        return packed

    async def _is_linked(self, repository: Repository, upload_id: str) -> bool:
        """Whether another request has linked an object whose block is gone or another one: it removed what it had
        copied, or the object was deleted or erased since, or the client wrote again.

        Raises:
            TarnError: OUTCOME_UNKNOWN: a request began to stage the object, and its end is not recorded.
        """
        now = (await self._uploads.get_any(repository, upload_id)).record
        if now.state == pb.UPLOAD_STATE_COMPLETED:
            return True
        if now.attempts:
            raise _may_be_linked()
        return False

    async def _copy(
        self, repository: Repository, upload: OpenUpload, written: WrittenObject, claim: Claim
    ) -> None:
        """Copies the object to the address at which it stays. It is that of the claim, unless an earlier one has begun
        to stage its copy: so no copy that arrives late replaces another one.

        Raises:
            TarnError: FAILED_PRECONDITION: LINK_USED, LINK_MISMATCH; BLOCK_NOT_FOUND; an error of the store;
                OUTCOME_UNKNOWN instead of all but LINK_USED if an earlier link may have staged the object. The claim
                is given up.
        """
        assert isinstance(self._blocks, PresignsWrites), "it signed the URL"
        source = _block_of(repository, upload)
        target = BlockKey(source.namespace, physical_path(claim.linked_address))
        try:
            await self._blocks.copy_written(source, target, written.size, written.etag)
        except TarnError as error:
            await self._give_up(repository, upload.upload_id, claim.op_id, may_be_staged=False)
            if isinstance(error, BlockExistsError):  # whatever was staged is that other object
                text = "the address was begun to be linked as another object; ask for a new one"
                raise TarnError(Kind.FAILED_PRECONDITION, Reason.LINK_USED, text) from error
            if claim.may_be_staged:
                raise _may_be_linked() from error
            if isinstance(error, BlockNotFoundError):
                raise _nothing_written(source) from error
            raise

    async def _remove(self, key: BlockKey) -> None:
        try:
            await self._blocks.delete_many(key.namespace, [key.path])
        except TarnError as error:
            # It is garbage, which a collection takes. The object is linked.
            _log.info("written object not removed", path=key.path, error=error.message)

    def _check_time(self, record: pb.UploadRecord) -> None:
        # A completion that has begun may go on: it may be staged already.
        is_open = record.state == pb.UPLOAD_STATE_OPEN
        is_late = is_open and self._clock.now_us() >= record.link_until_us
        if is_late or record.state == pb.UPLOAD_STATE_ABORTED:
            text = f"the address was issued more than {LINK_SECONDS // 60} minutes ago; ask for a new one"
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.LINK_EXPIRED, text)

    async def _check_block(
        self, repository: Repository, upload: OpenUpload, written: WrittenObject
    ) -> None:
        key = _block_of(repository, upload)
        try:
            info = await self._blocks.stat(key)
        except BlockNotFoundError as error:
            raise _nothing_written(key) from error
        written.check(info.size, info.etag)

    async def _finish(
        self,
        repository: Repository,
        upload_id: str,
        claim: bytes,
        packed: bytes,
        condition: WriteCondition,
        origin: Origin,
    ) -> None:
        """Stages under the claim. It is repeated, because most failures pass."""
        for attempt in range(1, _FINISH_TRIES + 1):
            try:
                await self._uploads.finish_complete(
                    repository, upload_id, claim, packed, condition, origin
                )
            except TarnError as error:
                if error.kind not in _UNCERTAIN:
                    await self._give_up(repository, upload_id, claim, may_be_staged=False)
                    raise
                if error.reason is Reason.UPLOAD_BUSY:
                    raise
                if attempt == _FINISH_TRIES:
                    await self._give_up(repository, upload_id, claim, may_be_staged=True)
                    raise
                _log.info("link repeated", upload_id=upload_id, error=error.message)
            else:
                return
            await self._clock.sleep(_FINISH_PAUSE_S * attempt)

    async def _give_up(
        self, repository: Repository, upload_id: str, claim: bytes, *, may_be_staged: bool
    ) -> None:
        try:
            await self._uploads.reopen(repository, upload_id, claim, may_be_staged=may_be_staged)
        except TarnError as error:
            # The claim expires by itself; the client must see the original failure.
            _log.warning("claim of a link not given up", upload_id=upload_id, error=error.message)


def _block_of(repository: Repository, upload: OpenUpload) -> BlockKey:
    return BlockKey(repository.storage_namespace, physical_path(upload.record.address))


def _nothing_written(key: BlockKey) -> TarnError:
    text = f"nothing was written to {key.namespace}/{key.path}; nothing was linked"
    return TarnError(Kind.NOT_FOUND, Reason.BLOCK_NOT_FOUND, text)


def _may_be_linked() -> TarnError:
    text = (
        "an earlier request may have linked the object, and its data is gone, was written again, or cannot be read; "
        "look at the path, or write the object again"
    )
    return TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, text)


def _invalid(field: str, text: str) -> TarnError:
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field=field)

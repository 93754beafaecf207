"""Checks multipart uploads, and the rows of a repository's register partitions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import numpy as np

from tarn.core.errors import TarnError
from tarn.core.ids import UploadId
from tarn.fsck.finding import Code
from tarn.fsck.reads import Reads
from tarn.fsck.references import ANY_SIZE, RECORD, References
from tarn.fsck.session import Lake, or_corrupt, shown, uuid_time_us
from tarn.kv.collection_records import decode_collection
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.port import Partition
from tarn.kv.pull_records import decode_pull, decode_pull_event, decode_pull_index
from tarn.kv.records import ENDED_UPLOAD, decode_branch, decode_ref_name, decode_tag, parse_record
from tarn.kv.rules_records import decode_settings
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = [
    "check_pulls",
    "check_refs_partition",
    "check_uploads",
    "gather_uploads",
    "upload_partitions",
]

_MULTIPART = b"multipart/"
_UNKNOWN = "unknown key layout"

Judge = Callable[[bytes, bytes], str | None]
"""Returns the damage of a row; None if there is none. May raise if it cannot read the row."""


async def check_refs_partition(lake: Lake) -> None:
    """Checks that every row has a known key and can be read."""
    async for _ in _sound_keys(lake, lake.keys.refs, _wrong_ref):
        pass


async def check_pulls(lake: Lake) -> None:
    """Checks that every row of pull requests has a known key and can be read."""
    async for _ in _sound_keys(lake, lake.keys.pulls, _wrong_of_pull):
        pass


async def upload_partitions(reads: Reads, keys: RepositoryKeys) -> list[Partition]:
    """Returns the partitions of the days whose uploads are kept."""
    prefix = keys.UPLOAD_DAYS
    rows = reads.rows(keys.refs, prefix, after_prefix(prefix))
    days = [keys.day_of(key) async for key, _ in rows]
    return [keys.uploads(day) for day in days if day is not None]


async def check_uploads(lake: Lake) -> None:
    """Checks that every row of uploads has a known key, can be read, and belongs to an upload that began.

    An ended upload leaves its rows; they are dropped with its day.
    """
    for partition in await upload_partitions(lake.session.reads, lake.keys):
        await _check_day(lake, partition)


async def _check_day(lake: Lake, partition: Partition) -> None:
    reads = lake.session.reads
    left: dict[str, bytes] = {}
    async for key in _sound_keys(lake, partition, _wrong_of_upload):
        upload_id = _upload_of(key)
        # The upload of young rows may be about to begin.
        if upload_id and upload_id not in left and uuid_time_us(upload_id) < lake.session.oldest_us:
            record = await reads.get(partition, lake.keys.upload(UploadId(upload_id)))
            if record is None:
                left[upload_id] = key
    for upload_id, key in left.items():
        if await reads.get(partition, key) is not None:  # or its day is being dropped
            text = f"it never began, but it has rows such as {shown(key)}"
            lake.find(Code.UPLOAD_ORPHAN, f"upload {upload_id}", text)


async def _sound_keys(lake: Lake, partition: Partition, judge: Judge) -> AsyncIterator[bytes]:
    """Yields the keys of readable rows; reports other rows."""
    reads = lake.session.reads
    async for key, value in reads.rows(partition):
        why = _wrong(judge, key, value)
        if why is not None:
            found = await reads.get(partition, key)
            why = None if found is None else _wrong(judge, key, found.value)
        if why is None:
            yield key
            continue
        code = Code.KEY_UNKNOWN if why == _UNKNOWN else Code.RECORD_DAMAGED
        lake.find(code, f"{partition.name} {shown(key)}", why)


def _upload_of(key: bytes) -> str:
    """Returns the upload whose part or index row this is; empty for another row."""
    if key.startswith(b"parts/"):
        return key.split(b"/")[1].decode()
    if key.startswith(RepositoryKeys.OPEN_UPLOADS):
        return RepositoryKeys.upload_of(key)
    return ""


def _wrong(judge: Judge, key: bytes, value: bytes) -> str | None:
    """Returns the damage of a row, also if it cannot be read; None if there is none."""
    try:
        return judge(key, value)
    except TarnError as error:
        return or_corrupt(error)
    except ValueError as error:
        return str(error)


def _wrong_ref(key: bytes, value: bytes) -> str | None:
    """The `Judge` of the partition `refs`."""
    match key.decode().partition("/")[0]:
        case "branches":
            return _wrong_branch(value)
        case "tags":
            decode_tag(value)
        case "names":
            decode_ref_name(value)
        case "settings":
            decode_settings(value)
        case "collection":
            decode_collection(value)
        case "closed":
            pass
        case "upload-days":
            return _UNKNOWN if RepositoryKeys.day_of(key) is None else None
        case _:
            return _UNKNOWN
    return None


def _wrong_of_pull(key: bytes, value: bytes) -> str | None:
    """The `Judge` of the partition of pull requests."""
    match key.decode().partition("/")[0]:
        case "pull":
            number = decode_pull(value).number
            return None if RepositoryKeys.pull(number) == key else f"it is number {number}"
        case "event":
            RepositoryKeys.pull_event_sequence(key)
            decode_pull_event(value)
        case "index":
            decode_pull_index(value)
        case _:
            return _UNKNOWN
    return None


def _wrong_of_upload(key: bytes, value: bytes) -> str | None:
    """The `Judge` of a day of uploads."""
    kind, _, name = key.decode().partition("/")
    match kind:
        case "multipart":
            upload = parse_record(pb.UploadRecord(), value)
            is_linked = len(upload.linked_address) in (0, 16)
            if len(upload.address) != 16 or not is_linked or not upload.state:
                return f"the upload has state {upload.state} and an address of {len(upload.address)} bytes"
        case "parts":
            part = parse_record(pb.UploadPartRecord(), value)
            if not name.endswith(f"/{part.part_number:05d}") or part.size_bytes < 0:
                return f"the record belongs to part {part.part_number}, {part.size_bytes} bytes"
        case "uploads":
            return None if "\0" in name and value in {b"", ENDED_UPLOAD} else _UNKNOWN
        case _:
            return _UNKNOWN
    return None


def _wrong_branch(value: bytes) -> str | None:
    branch = decode_branch(value)
    ids = [token.token_id for token in branch.tokens]
    if len(set(ids)) != len(ids):
        return f"it names a token twice: {', '.join(ids)}"
    for token in branch.tokens:
        if len(token.token_id) != 32 or token.buckets < 1:
            return f"it names token {token.token_id!r} with {token.buckets} buckets"
    if not branch.incarnation or len(branch.commit_id) != 64:
        return f"it names commit {branch.commit_id!r} and incarnation {branch.incarnation.hex()!r}"
    return None


async def gather_uploads(lake: Lake, references: References) -> None:
    """Gathers the addresses of uploads: no other object may use their blocks, complete or not."""
    source = references.source("upload", "")
    records = np.zeros(1, RECORD)
    records["size"], records["source"] = ANY_SIZE, source
    end = _MULTIPART[:-1] + b"0"
    for partition in await upload_partitions(lake.session.reads, lake.keys):
        async for _, value in lake.session.reads.rows(partition, _MULTIPART, end):
            try:
                upload = parse_record(pb.UploadRecord(), value)
            except TarnError as error:
                or_corrupt(error)
                continue
            for address in (upload.address, upload.linked_address):
                if len(address) == 16:
                    records["address"] = address
                    references.add(records.copy())
    references.flush()

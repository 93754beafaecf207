"""Multipart uploads, and what else is in a repository's register partition."""

from __future__ import annotations

import numpy as np

from tarn.core.errors import TarnError
from tarn.core.ids import UploadId
from tarn.kv.records import decode_branch, decode_tag, parse_record
from tarn_graveler.fsck.finding import Code
from tarn_graveler.fsck.references import ANY_SIZE, RECORD, References
from tarn_graveler.fsck.session import Lake, or_corrupt, shown, uuid_time_us
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = ["check_refs_partition", "gather_uploads"]

_LIVE = {pb.UPLOAD_STATE_OPEN, pb.UPLOAD_STATE_COMPLETING}
_MULTIPART = b"multipart/"


async def check_refs_partition(lake: Lake) -> None:
    """Every row has a known key and can be read; rows of uploads that have ended are gone."""
    reads, refs = lake.session.reads, lake.keys.refs
    left: dict[str, bytes] = {}
    async for key, value in reads.rows(refs):
        why = _wrong(key, value)
        if why is not None:
            found = await reads.get(refs, key)
            why = None if found is None else _wrong(key, found.value)
        if why is not None:
            code = Code.KEY_UNKNOWN if why == _UNKNOWN else Code.RECORD_DAMAGED
            lake.find(code, f"{refs.name} {shown(key)}", why)
        elif (upload_id := _upload_of(key)) and upload_id not in left:
            if uuid_time_us(upload_id) >= lake.session.oldest_us:
                continue
            if not await _is_live(lake, upload_id):
                left[upload_id] = key
    if left:
        # An upload ends first and its rows go next: they need a moment.
        await lake.session.clock.sleep(lake.session.options.settle_seconds)
    for upload_id, key in left.items():
        if await reads.get(refs, key) is not None:
            text = f"ended, or never begun, and left rows such as {shown(key)}"
            lake.find(Code.UPLOAD_ORPHAN, f"upload {upload_id}", text)


async def _is_live(lake: Lake, upload_id: str) -> bool:
    found = await lake.session.reads.get(lake.keys.refs, lake.keys.upload(UploadId(upload_id)))
    if found is None:
        return False
    try:
        return parse_record(pb.UploadRecord(), found.value).state in _LIVE
    except TarnError as error:
        or_corrupt(error)
        return True  # its record is a finding already


def _upload_of(key: bytes) -> str:
    """The upload whose part or index row this is; empty for another row."""
    if key.startswith(b"parts/"):
        return key.split(b"/")[1].decode()
    if key.startswith(b"uploads/"):
        return key.rpartition(b"\0")[2].decode()
    return ""


_UNKNOWN = "no such layout"


def _wrong(key: bytes, value: bytes) -> str | None:
    """What is wrong with a row."""
    try:
        kind, _, name = key.decode().partition("/")
        match kind:
            case "branches":
                return _wrong_branch(value)
            case "tags":
                decode_tag(value)
            case "multipart":
                upload = parse_record(pb.UploadRecord(), value)
                if len(upload.address) != 16 or not upload.state:
                    return f"an upload in state {upload.state} to an address of {len(upload.address)} bytes"
            case "parts":
                part = parse_record(pb.UploadPartRecord(), value)
                if not name.endswith(f"/{part.part_number:05d}") or part.size_bytes < 0:
                    return f"the record is of part {part.part_number}, {part.size_bytes} bytes"
            case "uploads":
                return None if "\0" in name else _UNKNOWN
            case _:
                return _UNKNOWN
    except TarnError as error:
        return or_corrupt(error)
    except ValueError as error:
        return str(error)
    return None


def _wrong_branch(value: bytes) -> str | None:
    branch = decode_branch(value)
    ids = [token.token_id for token in branch.tokens]
    if len(set(ids)) != len(ids):
        return f"it names a token twice: {', '.join(ids)}"
    for token in branch.tokens:
        if len(token.token_id) != 32 or token.buckets < 1:
            return f"token {token.token_id!r} with {token.buckets} buckets"
    if not branch.incarnation or len(branch.commit_id) != 64:
        return f"commit {branch.commit_id!r}, incarnation {branch.incarnation.hex()!r}"
    return None


async def gather_uploads(lake: Lake, references: References) -> None:
    """The addresses of uploads: nobody else may have their blocks, complete or not."""
    source = references.source("upload", "")
    records = np.zeros(1, RECORD)
    records["size"], records["source"] = ANY_SIZE, source
    end = _MULTIPART[:-1] + b"0"
    async for _, value in lake.session.reads.rows(lake.keys.refs, _MULTIPART, end):
        try:
            address = parse_record(pb.UploadRecord(), value).address
        except TarnError as error:
            or_corrupt(error)
            continue
        if len(address) == 16:
            records["address"] = address
            references.add(records.copy())
    references.flush()

"""Staging tokens: checks the branches that name them and their rows, and gathers references to blocks."""

from __future__ import annotations

import json
import re
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarn.core.branch import Branch, Token
from tarn.core.entry import (
    ADDRESS_AT,
    HEAD_BYTES,
    VERSION,
    is_tombstone,
    operation_of,
    unpack,
)
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import BranchId, parse_path
from tarn.core.listing.run import VALUE_END, data_of, offsets_of
from tarn.fsck.finding import Code
from tarn.fsck.references import Records, References, records_of
from tarn.fsck.session import Lake, or_corrupt, shown
from tarn.kv.keys import COPIED, STAGED_UPLOADS, after_prefix, day_of_upload, path_key
from tarn.kv.records import decode_branch

__all__ = ["branch_names", "gather_staged", "named_token", "read_branch", "token_of_source"]

_PREFIX = path_key("")
_ADDRESS = re.compile(rb"[0-9a-f]{32}")


def source_of_token(branch_id: BranchId, token: Token) -> str:
    """Returns the name of a token as a source of references."""
    return json.dumps([branch_id, token.token_id])


def token_of_source(name: str) -> tuple[BranchId, str]:
    """Returns the branch and the token id of such a name."""
    branch_id, token_id = json.loads(name)
    return BranchId(branch_id), token_id


async def branch_names(lake: Lake) -> list[BranchId]:
    """Returns the names of all branches, or of the requested one."""
    wanted = lake.session.options.ref_key
    prefix = lake.keys.branch("")
    if wanted:
        return [] if wanted.startswith("tags/") else [BranchId(wanted.removeprefix("branches/"))]
    names = []
    async for key, _ in lake.session.reads.rows(lake.keys.refs, prefix, after_prefix(prefix)):
        names.append(BranchId(key[len(prefix) :].decode(errors="replace")))
    return names


async def read_branch(lake: Lake, branch_id: BranchId) -> Branch | None:
    """Reads a branch as it is now; None if it is deleted or cannot be read, which another step reports."""
    found = await lake.session.reads.get(lake.keys.refs, lake.keys.branch(branch_id))
    if found is None:
        return None
    try:
        branch = decode_branch(found.value)
    except TarnError as error:
        or_corrupt(error)
        return None
    return None if branch.is_deleted else branch


async def named_token(lake: Lake, branch_id: BranchId, token_id: str) -> Token | None:
    """Returns a token if its branch names it now; only then is damage to it a finding."""
    branch = await read_branch(lake, branch_id)
    tokens = () if branch is None else branch.tokens
    return next((token for token in tokens if token.token_id == token_id), None)


async def gather_staged(lake: Lake, references: References, round_number: int) -> None:
    """Reads every token of every branch; the first round also checks the rows."""
    state, progress = lake.session.state, lake.session.progress
    progress.begin(f"{lake.repository.repository_id}: staged entries")
    for branch_id in await branch_names(lake):
        branch = await read_branch(lake, branch_id)
        if branch is None:
            continue
        for token in branch.tokens:
            step = f"staged {round_number} {lake.uid} {source_of_token(branch_id, token)}"
            if state.is_done(step):
                continue
            if round_number == 1:
                await _check_owner(lake, branch_id, token)
            await _Scan(lake, references, branch_id, token, is_checked=round_number == 1).run()
            references.flush()
            state.done(step)


async def _check_owner(lake: Lake, branch_id: BranchId, token: Token) -> None:
    """Checks that no other branch names this token."""
    state = lake.session.state
    partition = lake.keys.token(branch_id, token).name
    state.change(
        "INSERT OR IGNORE INTO tokens VALUES (?, ?, ?, ?)",
        token.token_id,
        partition,
        lake.uid,
        branch_id,
    )
    ((other, uid, name),) = state.all(
        "SELECT partition, uid, branch FROM tokens WHERE token_id=?", token.token_id
    )
    if (uid, name) == (lake.uid, branch_id):
        return
    if await named_token(lake, branch_id, token.token_id) is not None:
        text = f"named by branch {branch_id}, and by {other}"
        lake.find(Code.TOKEN_SHARED, f"token {token.token_id}", text)


class _Scan:
    """One scan of one token."""

    def __init__(
        self,
        lake: Lake,
        references: References,
        branch_id: BranchId,
        token: Token,
        *,
        is_checked: bool,
    ) -> None:
        self._lake = lake
        self._references = references
        self._branch_id = branch_id
        self._token = token
        self._partition = lake.keys.token(branch_id, token)
        self._source = references.source("token", source_of_token(branch_id, token))
        self._is_checked = is_checked

    async def run(self) -> None:
        session = self._lake.session
        with_md5 = session.options.verify_data
        try:
            async for batch in session.reads.batches(self._partition):

                def look(batch: pa.RecordBatch = batch) -> object:
                    return look_at(batch, self._source, with_md5=with_md5)

                records, bad = cast("tuple[Records, list[bytes]]", await session.compute(look))
                self._references.add(records)
                session.progress.done += batch.num_rows
                for key in bad if self._is_checked else ():
                    await self._confirm(key)
        except TarnError as error:
            if error.kind not in {Kind.INVALID, Kind.CORRUPT}:
                raise
            if await named_token(self._lake, self._branch_id, self._token.token_id) is not None:
                self._lake.find(Code.TOKEN_UNREADABLE, self._partition.name, error.message)

    async def _confirm(self, key: bytes) -> None:
        """Reads a suspicious row again, and checks that its token is still in use."""
        found = await self._lake.session.reads.get(self._partition, key)
        if found is None or (why := _wrong(key, found.value)) is None:
            return
        if await named_token(self._lake, self._branch_id, self._token.token_id) is None:
            return
        code = Code.ENTRY_INVALID if key.startswith(_PREFIX) else Code.KEY_UNKNOWN
        self._lake.find(code, f"{self._partition.name} {shown(key)}", why)


def look_at(batch: pa.RecordBatch, source: int, *, with_md5: bool) -> tuple[Records, list[bytes]]:
    """Returns the references of staged rows, and the keys of invalid rows.

    Rows are checked one by one only if a check of the whole column finds a problem.
    """
    batch, notes = _without_notes(batch)
    keys, values = batch.column("key"), batch.column("value")
    ends = offsets_of(values)
    lengths = np.diff(ends)
    good = lengths >= HEAD_BYTES
    good[good] = data_of(values)[ends[:-1][good].astype(np.int64)] == VERSION
    for row in np.flatnonzero(good & (lengths > HEAD_BYTES)).tolist():
        good[row] = _wrong_entry(values[row].as_py()) is None
    if not _are_paths(keys):
        for row, key in enumerate(keys.to_pylist()):
            good[row] &= _wrong_key(key) is None
    bad = keys.filter(pa.array(~good)).to_pylist()
    values = values.filter(pa.array(good)) if bad else values
    records, impossible = records_of(values, source, with_md5=with_md5)
    keys = keys.filter(pa.array(good)) if bad else keys
    return records, notes + bad + [keys[row].as_py() for row in impossible.tolist()]


def _without_notes(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[bytes]]:
    """Returns the rows without the notes of uploads and copies, and the keys of damaged notes."""
    keys = batch.column("key")
    are_notes = pc.or_(_start_with(keys, STAGED_UPLOADS), _start_with(keys, COPIED))
    if not pc.any(are_notes).as_py():
        return batch, []
    notes = batch.filter(are_notes)
    bad = [
        key
        for key, value in zip(
            notes.column("key").to_pylist(), notes.column("value").to_pylist(), strict=True
        )
        if _wrong(key, value) is not None
    ]
    return batch.filter(pc.invert(are_notes)), bad


def _start_with(keys: pa.BinaryArray, prefix: bytes) -> pa.BooleanArray:
    return pc.equal(pc.binary_slice(keys, 0, len(prefix)), pa.scalar(prefix, pa.binary()))


def _are_paths(keys: pa.BinaryArray) -> bool:
    heads = pc.binary_slice(keys, 0, len(_PREFIX))
    if not pc.all(pc.equal(heads, pa.scalar(_PREFIX, pa.binary()))).as_py():
        return False
    if int(pc.max(pc.binary_length(keys)).as_py()) > len(_PREFIX) + 1024:
        return False
    if int(pc.min(pc.binary_length(keys)).as_py()) <= len(_PREFIX):
        return False
    try:
        pc.binary_slice(keys, len(_PREFIX), VALUE_END).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _wrong_key(key: bytes) -> str | None:
    if not key.startswith(_PREFIX):
        return "unknown key layout"
    try:
        parse_path(key[len(_PREFIX) :].decode())
    except (TarnError, UnicodeDecodeError) as error:
        return f"its key is not a path: {error}"
    return None


def _wrong_entry(value: bytes) -> str | None:
    try:
        if len(value) >= HEAD_BYTES and value[0] == VERSION and is_tombstone(value):
            operation_of(value)
        else:
            unpack(value)
    except TarnError as error:
        return error.message
    return None


def _wrong(key: bytes, value: bytes) -> str | None:
    if key.startswith(STAGED_UPLOADS):
        upload_id = key.removeprefix(STAGED_UPLOADS).decode(errors="replace")
        is_note = not value and day_of_upload(upload_id) is not None
        return None if is_note else "not a note of a completed upload"
    if key.startswith(COPIED):
        is_note = not value and _ADDRESS.fullmatch(key.removeprefix(COPIED)) is not None
        return None if is_note else "not a note of a copied address"
    why = _wrong_key(key) or _wrong_entry(value)
    if why is None and not is_tombstone(value):
        values = pa.array([value], pa.binary())
        if len(records_of(values, 0, with_md5=False)[1]):
            why = f"the address {value[ADDRESS_AT].hex()} is impossible, or the size is negative"
    return why

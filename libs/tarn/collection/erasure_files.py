"""The files of an erasure, below `_tarn/erased/<plan>/` (docs/formats/erasure.md).

`list.parquet` names the objects, `plan.json` counts them and has the SHA-256 of the list, `begun.json` says that a run
began, and `outcomes-<run>.parquet` and `certificate-<run>.json` give the outcome of each block. They stay for ever:
they are the only record of the erased objects, and the rows of addresses can be written again from them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tarn.block.paging import blocks_below
from tarn.block.port import (
    BlockExistsError,
    BlockKey,
    BlockNotFoundError,
    BlockStore,
    ReadBlocks,
    read_whole,
)
from tarn.collection.quarantine import Tally
from tarn.core.erasure import ADDRESS_BYTES
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.parquet import UNREADABLE, ParquetLimits, read_table

__all__ = [
    "ERASURE_FOLDER",
    "OBJECTS_SCHEMA",
    "Certificate",
    "ErasurePlan",
    "JournalCertificate",
    "begin_run",
    "certificate_json",
    "encode_list",
    "erasable_of",
    "has_begun",
    "plan_ids",
    "read_certificate",
    "read_list",
    "read_plan",
    "uncertified_in_journal",
    "wanted_of",
    "write_certificate",
    "write_journal_certificate",
    "write_outcomes",
    "write_plan",
]

ERASURE_FOLDER: Final = "_tarn/erased/"
OBJECTS_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("address", pa.binary(ADDRESS_BYTES), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("matches", pa.bool_(), nullable=False),
        pa.field("too_young", pa.bool_(), nullable=False),
    ]
)
"""One row for each path and address: also for other paths that refer to an address of the plan (`matches` is false)."""
_OUTCOMES: Final = pa.schema(
    [
        pa.field("block", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
    ]
)
_VERSION: Final = 1
_PAGE: Final = 1000
_JSON_BYTES_MAX: Final = 64 << 20
_LIST_BYTES_MAX: Final = 1 << 30
_LIST_LIMITS: Final = ParquetLimits(rows=1 << 24, size_bytes=1 << 30)
"""Bounds of the list of a plan: it is read into the memory of whoever runs the erasure."""
_PLAN_PATH = re.compile(r"_tarn/erased/([0-9a-f]{32})/plan\.json")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ErasurePlan:
    """A plan: the objects that it found.

    Attributes:
        plan_id: 32 hex digits.
        repository: its name.
        pattern: of the paths.
        plan_us: when the list was complete, microseconds since the epoch.
        planned_by: the user.
        cutoff_us: younger addresses are left out, microseconds since the epoch.
        list_sha256: of `list.parquet`.
        erasable: blocks that a run deletes.
        too_young: blocks that match and are left out.
        paths: number of matching paths, in all of history.
        others: other paths that lose their content, too.
        heads: matching objects in the committed head of each branch, zeros left out.
        staged: matching staged rows of each branch, zeros left out; also those that newer rows hide.
        outside: matching entries whose data is outside the namespace, and is not erased.
        incomplete: commits' listings that are not needed and whose files are missing; their objects are unknown.
        uncommitted: entries of each branch that a run would have discarded, zeros left out.
    """

    plan_id: str
    repository: str
    pattern: str
    plan_us: int
    planned_by: str
    cutoff_us: int
    list_sha256: str
    erasable: Tally
    too_young: Tally
    paths: int
    others: int
    heads: Mapping[str, int]
    staged: Mapping[str, int]
    outside: int
    incomplete: tuple[str, ...] = ()
    uncommitted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The proof of a run.

    Attributes:
        plan: the plan.
        erased_by: the user of the run.
        begin_us: when the run began, microseconds since the epoch.
        look_us: when the last look at the blocks ended: none of them was there.
        deleted: the blocks of the plan.
        run_id: the run, 32 hex digits.
        outcomes_sha256: of `outcomes-<run>.parquet`, which names each block.
        came_since: matching objects of a second plan that this plan does not have; they need another run.
        promise: the promise, and the data that stays, in words.
        discarded: uncommitted entries of each branch that the run discarded, zeros left out.
    """

    plan: ErasurePlan
    erased_by: str
    begin_us: int
    look_us: int
    deleted: Tally
    run_id: str
    outcomes_sha256: str
    came_since: int
    promise: str
    discarded: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JournalCertificate:
    """The proof that the journal of a repository does not name the blocks of a plan any more.

    Attributes:
        plan_id: the plan.
        run_id: of the last run that has a certificate.
        blocks: how many blocks were looked for.
        look_us: when the look at all files of the journal began, microseconds since the epoch.
        promise: what it proves, in words.
    """

    plan_id: str
    run_id: str
    blocks: int
    look_us: int
    promise: str = (
        "when the look began, no file below _tarn/journal/ had an event that names one of these blocks; paths stay in "
        "the files of the plan and in commits, and files that the bucket keeps as older versions were not looked at"
    )


def _key(namespace: str, plan_id: str, name: str) -> BlockKey:
    return BlockKey(namespace, f"{ERASURE_FOLDER}{plan_id}/{name}")


async def write_plan(blocks: BlockStore, namespace: str, plan: ErasurePlan, body: bytes) -> None:
    """Writes the list, then the plan, which makes it one."""
    await blocks.put(_key(namespace, plan.plan_id, "list.parquet"), body)
    await _write_json(blocks, _key(namespace, plan.plan_id, "plan.json"), plan)


def encode_list(objects: pa.Table) -> tuple[bytes, str]:
    """Returns `list.parquet` of rows of `OBJECTS_SCHEMA`, and its SHA-256.

    Raises:
        TarnError: EXHAUSTED: there are more rows than `read_list` accepts.
    """
    if len(objects) > _LIST_LIMITS.rows or objects.nbytes > _LIST_LIMITS.size_bytes // 2:
        text = (
            f"{len(objects)} objects of {objects.nbytes} bytes are more than one plan of an erasure may list; make "
            "several plans"
        )
        raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
    return _parquet(objects)


def _parquet(table: pa.Table) -> tuple[bytes, str]:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    body: bytes = sink.getvalue().to_pybytes()
    return body, hashlib.sha256(body).hexdigest()


async def read_plan(blocks: ReadBlocks, namespace: str, plan_id: str) -> ErasurePlan:
    """Returns a plan.

    Raises:
        TarnError: NOT_FOUND; CORRUPT if it is damaged.
    """
    key = _key(namespace, plan_id, "plan.json")
    values = await _read_json(blocks, key)
    if values is None:
        text = f"there is no plan {plan_id} in {namespace}; `tarn erase plan` makes one"
        raise TarnError(Kind.NOT_FOUND, Reason.BLOCK_NOT_FOUND, text, plan_id=plan_id)
    return _made(key, values, _plan_of)


async def read_list(blocks: ReadBlocks, namespace: str, plan: ErasurePlan) -> pa.Table:
    """Returns the rows of a plan's list, after checking that it is the one that was shown.

    Raises:
        TarnError: CORRUPT if it is missing or another one.
    """
    key = _key(namespace, plan.plan_id, "list.parquet")
    try:
        body = await read_whole(blocks, key, _LIST_BYTES_MAX)
    except BlockNotFoundError as error:
        raise _damaged(key, "it is missing") from error
    if hashlib.sha256(body).hexdigest() != plan.list_sha256:
        raise _damaged(key, "its SHA-256 is not that of the plan")
    try:
        return read_table(body, OBJECTS_SCHEMA, _LIST_LIMITS)
    except UNREADABLE as error:
        raise _damaged(key, str(error)) from error


def wanted_of(objects: pa.Table) -> pa.Table:
    """Returns the rows of a list whose blocks a run deletes, and whose uncommitted entries it discards."""
    return objects.filter(pc.and_(objects["matches"], pc.invert(objects["too_young"])))


def erasable_of(objects: pa.Table) -> pa.Table:
    """Returns the columns `address` and `size` of the blocks that a run deletes, each address once, in order."""
    found = wanted_of(objects).group_by("address").aggregate([("size", "max")]).sort_by("address")
    return pa.table({"address": found["address"], "size": found["size_max"]})


async def begin_run(
    blocks: BlockStore, namespace: str, plan_id: str, user: str, now_us: int
) -> None:
    """Notes that a run began, before it writes its first row; the first run of a plan leaves the note."""
    body = json.dumps({"version": _VERSION, "begin_us": now_us, "user": user}).encode()
    with suppress(BlockExistsError):
        await blocks.put(_key(namespace, plan_id, "begun.json"), body)


async def has_begun(blocks: ReadBlocks, namespace: str, plan_id: str) -> bool:
    """Whether a run of a plan began, so that rows of its addresses may exist."""
    return await _read_json(blocks, _key(namespace, plan_id, "begun.json")) is not None


async def plan_ids(blocks: ReadBlocks, namespace: str) -> AsyncIterator[str]:
    """Yields the ids of the plans of a namespace, oldest first."""
    async for info in blocks_below(blocks, namespace, ERASURE_FOLDER):
        if match := _PLAN_PATH.fullmatch(info.path):
            yield match[1]


async def write_outcomes(
    blocks: BlockStore, namespace: str, plan_id: str, run_id: str, rows: pa.Table
) -> str:
    """Writes the outcome of each block (columns block, size, outcome); returns the SHA-256 of the file."""
    body, digest = _parquet(rows.cast(_OUTCOMES))
    await blocks.put(_key(namespace, plan_id, f"outcomes-{run_id}.parquet"), body)
    return digest


async def write_certificate(blocks: BlockStore, namespace: str, certificate: Certificate) -> None:
    """Writes the certificate, which ends the run."""
    name = f"certificate-{certificate.run_id}.json"
    key = _key(namespace, certificate.plan.plan_id, name)
    await _write_json(blocks, key, certificate)


async def read_certificate(blocks: ReadBlocks, namespace: str, plan_id: str) -> Certificate | None:
    """Returns the last certificate of a plan; None if no run of it is complete.

    Raises:
        TarnError: CORRUPT if it is damaged.
    """
    prefix = _key(namespace, plan_id, "certificate-").path
    page = await blocks.list_page(namespace, prefix, "", _PAGE)
    if not page:
        return None
    key = BlockKey(namespace, page[-1].path)
    values = await _read_json(blocks, key)
    return None if values is None else _made(key, values, _certificate_of)


async def uncertified_in_journal(
    blocks: ReadBlocks, namespace: str
) -> AsyncIterator[tuple[Certificate, pa.Table]]:
    """Yields the plans that have a certificate and none about the journal, with the rows of `erasable_of`.

    Raises:
        TarnError: CORRUPT: a file is missing or damaged.
    """
    async for plan_id in plan_ids(blocks, namespace):
        if await _read_json(blocks, _key(namespace, plan_id, "journal.json")) is None:
            certificate = await read_certificate(blocks, namespace, plan_id)
            if certificate is not None:
                plan = await read_plan(blocks, namespace, plan_id)
                yield certificate, erasable_of(await read_list(blocks, namespace, plan))


async def write_journal_certificate(
    blocks: BlockStore, namespace: str, certificate: JournalCertificate
) -> None:
    """Writes the certificate about the journal; the first one of a plan stays."""
    with suppress(BlockExistsError):
        key = _key(namespace, certificate.plan_id, "journal.json")
        await _write_json(blocks, key, certificate)


def certificate_json(certificate: Certificate) -> str:
    """Returns a certificate as text, for people who keep it."""
    return json.dumps({"version": _VERSION, **asdict(certificate)}, indent=1)


async def _write_json(
    blocks: BlockStore, key: BlockKey, value: ErasurePlan | Certificate | JournalCertificate
) -> None:
    body = json.dumps({"version": _VERSION, **asdict(value)}, indent=1).encode()
    await blocks.put(key, body)


async def _read_json(blocks: ReadBlocks, key: BlockKey) -> dict[str, Any] | None:
    try:
        body = await blocks.read(key, 0, _JSON_BYTES_MAX)
    except BlockNotFoundError:
        return None
    try:
        values = json.loads(body)
        if values.pop("version") != _VERSION:
            raise _damaged(key, "it has another version")
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(key, str(error)) from error
    found: dict[str, Any] = values
    return found


def _made(key: BlockKey, values: dict[str, Any], make: Callable[[dict[str, Any]], T]) -> T:
    try:
        return make(values)
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(key, str(error)) from error


def _plan_of(values: dict[str, Any]) -> ErasurePlan:
    erasable, too_young = Tally(**values.pop("erasable")), Tally(**values.pop("too_young"))
    incomplete = tuple(values.pop("incomplete"))
    return ErasurePlan(erasable=erasable, too_young=too_young, incomplete=incomplete, **values)


def _certificate_of(values: dict[str, Any]) -> Certificate:
    plan, deleted = _plan_of(values.pop("plan")), Tally(**values.pop("deleted"))
    return Certificate(plan=plan, deleted=deleted, **values)


def _damaged(key: BlockKey, why: str) -> TarnError:
    text = (
        f"{key.path} in {key.namespace}, a file of an erasure, cannot be used: {why}; nothing was deleted because "
        "of it; make another plan"
    )
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=key.path)

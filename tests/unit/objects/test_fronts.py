"""A front that speaks no S3, over a real graveler and a real auth: what the docstring of `tarn.objects` shows."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from graveler_service import Service, running_service
from tests.support.clock import SeededIds

from tarn.block.local import open_local
from tarn.block.port import CHUNK_BYTES, BlockKey, BlockStore, FileSlice
from tarn.core.condition import WriteCondition
from tarn.core.entry import Entry, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId
from tarn.core.part_list import PartList
from tarn.core.value import hot_value
from tarn.objects.backend import ObjectBackend
from tarn.objects.bodies import Body, LostBlockError, block_key, open_body
from tarn.objects.checksums import multipart_md5
from tarn.objects.completing import PlannedObject, complete_upload
from tarn.objects.conditions import ReadConditions, judge_read
from tarn.objects.copying import copied, find_source
from tarn.objects.erased import told_if_erased
from tarn.objects.headers import NOTHING, stored_headers, with_headers
from tarn.objects.incoming import BodyMismatchError, BodyTooLargeError, StreamedBody
from tarn.objects.repository_cache import CachedRepository, RepositoryCache
from tarn.objects.uploads import abort_upload, begin_upload, store_part
from tarn.objects.writing import stage, store_object
from tarn.rpc.process.system import SystemClock
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import upload_service_pb2 as pb

MAIN = BranchId("main")
SMALL = b"id,name\n1,ann\n"
LARGE = bytes(range(256)) * 12_000
MANY = 5 << 30


@hot_value
class Request:
    """Whoever calls, as a front knows them."""

    request_id: str
    caller_token: str
    began: float
    view: str = ""


@dataclass
class Front:
    """The resources of a front, and one caller."""

    service: Service
    backend: ObjectBackend
    caller: Request

    async def put(
        self, path: str, body: bytes, condition: WriteCondition | None = None, **about: str
    ) -> Entry:
        received = await StreamedBody.begun(pieces_of(body), bytes_max=MANY, small=64 << 10)
        return await store_object(
            self.backend,
            self.caller,
            await self.repository(),
            MAIN,
            path,
            received,
            stored_headers("text/csv", about),
            condition=condition or WriteCondition(),
            operation="op-12345" if condition else "",
        )

    async def get(
        self, path: str, wanted: str | None = None, *, as_file: bool = False
    ) -> tuple[int, Body]:
        """Returns status and body of a read, as a front answers it."""
        call = self.backend.call(self.caller)
        found = await self.backend.graveler.lookup(call, "lake", "main", path)
        entry = unpack(found.entry)
        told = judge_read(ReadConditions(), entry.etag, entry.mtime_us, entry.size, wanted)
        if told.status not in (200, 206):
            return told.status, b""
        key = block_key(found.storage_namespace, entry)
        async with told_if_erased(self.backend, self.caller, "lake", "main", path):
            body = await open_body(
                self.backend.blocks, key, told.start, told.length, 64 << 10, as_file=as_file
            )
        return told.status, body

    async def blocks(self) -> list[str]:
        await self.backend.removals.drain(10.0)
        namespace = (await self.repository()).namespace
        found = await self.backend.blocks.list_page(namespace, "data/", "", 100)
        return [each.path for each in found]

    async def repository(self) -> CachedRepository:
        return await self.backend.repository(self.caller, "lake")


async def pieces_of(body: bytes, size: int = 50_000) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def whole(body: Body) -> bytes:
    assert not isinstance(body, FileSlice)
    return body if isinstance(body, bytes) else b"".join([bytes(each) async for each in body])


def front_of(service: Service, blocks: BlockStore) -> Front:
    async def own_token(_: Call) -> str:
        return await service.gateway_token()

    backend = ObjectBackend(
        graveler=service.graveler,
        blocks=blocks,
        repositories=RepositoryCache(service.graveler, service.clock),
        clock=service.clock,
        ids=SeededIds(service.clock, seed=5),
        own_token=own_token,
    )
    began = service.clock.monotonic()
    return Front(service, backend, Request("r-1", service.admin.caller_token, began))


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    async with running_service(tmp_path) as service:
        yield front_of(service, service.replicas.blocks)


@pytest.mark.parametrize("body", [b"", SMALL, LARGE])
async def test_a_body_that_has_come_is_stored_like_one_that_comes(
    front: Front, body: bytes
) -> None:
    repository = await front.repository()
    held = StreamedBody.held(body, bytes_max=MANY, md5=hashlib.md5(body).digest())
    entry = await store_object(front.backend, front.caller, repository, MAIN, "held", held)
    status, found = await front.get("held")
    assert (status, await whole(found)) == (200, body)
    assert (entry.size, entry.md5) == (len(body), hashlib.md5(body).digest())


@pytest.mark.parametrize("body", [b"", SMALL, LARGE])
async def test_a_body_comes_back_whole_and_in_ranges(front: Front, body: bytes) -> None:
    entry = await front.put("a", body, Kind="raw")
    assert (entry.size, entry.md5) == (len(body), hashlib.md5(body).digest())
    assert (entry.content_type, entry.metadata) == ("text/csv", (("kind", "raw"),))
    status, found = await front.get("a")
    assert (status, await whole(found)) == (200, body)
    status, found = await front.get("a", "bytes=2-9")
    assert (status, await whole(found)) == ((206, body[2:10]) if body else (416, b""))


async def test_a_front_that_sends_no_files_gets_chunks(tmp_path: Path) -> None:
    blocks = await open_local(tmp_path, clock=SystemClock(), durability="os")
    key = BlockKey("local://lake", "data/a")
    await blocks.put(key, LARGE)
    file = await open_body(blocks, key, 1, len(LARGE) - 1, 64 << 10)
    assert isinstance(file, FileSlice)
    file.file.close()
    chunks = await open_body(blocks, key, 1, len(LARGE) - 1, 64 << 10, as_file=False)
    assert not isinstance(chunks, bytes | FileSlice)
    found = [bytes(each) async for each in chunks]
    assert b"".join(found) == LARGE[1:]
    assert max(map(len, found)) <= CHUNK_BYTES
    await blocks.close()


async def test_a_refused_body_leaves_nothing(front: Front) -> None:
    repository = await front.repository()
    limited = StreamedBody(pieces_of(LARGE), bytes_max=len(LARGE) - 1)
    with pytest.raises(BodyTooLargeError):
        await store_object(front.backend, front.caller, repository, MAIN, "a", limited)
    wrong = StreamedBody(pieces_of(SMALL), bytes_max=MANY, size=len(SMALL), md5=bytes(16))
    with pytest.raises(BodyMismatchError, match="MD5"):
        await store_object(front.backend, front.caller, repository, MAIN, "a", wrong)
    held = StreamedBody.held(SMALL, bytes_max=MANY, md5=bytes(16))
    with pytest.raises(BodyMismatchError, match="MD5"):
        await store_object(front.backend, front.caller, repository, MAIN, "a", held)
    with pytest.raises(BodyTooLargeError):
        StreamedBody.held(SMALL, bytes_max=len(SMALL) - 1)
    assert await front.blocks() == []


async def test_the_block_of_a_refused_entry_goes_and_that_of_a_doubtful_one_stays(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    await front.put("a", SMALL)
    kept = await front.blocks()
    with pytest.raises(TarnError) as caught:
        await front.put("a", LARGE, WriteCondition(if_none_match=True))
    assert caught.value.reason is Reason.PRECONDITION_FAILED
    nobody = replace(front.caller, caller_token="")
    repository = await front.repository()
    with pytest.raises(TarnError) as caught:
        await store_object(front.backend, nobody, repository, MAIN, "b", await small_body())
    assert caught.value.kind is Kind.UNAUTHENTICATED
    assert await front.blocks() == kept

    async def lost(*_: object, **__: object) -> bool:
        raise TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, "the answer is lost")

    monkeypatch.setattr(front.service.graveler, "stage", lost)
    with pytest.raises(TarnError, match="the answer is lost"):
        await front.put("b", SMALL)
    assert len(await front.blocks()) == len(kept) + 1


async def small_body() -> StreamedBody:
    return await StreamedBody.begun(pieces_of(SMALL), bytes_max=MANY, small=64 << 10)


async def test_a_copy_shares_the_block_or_has_its_own_bytes(front: Front) -> None:
    original = await front.put("a", LARGE)
    repository = await front.repository()
    backend, caller = front.backend, front.caller
    for into, name in (("lake", "shared"), ("", "own")):
        call = backend.opening_call(caller)
        source = await find_source(backend, call, "lake", "main", "a", into=into)
        entry, block = await copied(backend, caller, source, repository, MAIN)
        await stage(backend, caller, repository, MAIN, name, entry, block=block)
        assert await whole((await front.get(name))[1]) == LARGE
        assert (block is None) == (entry.address == original.address) == (into == "lake")
    assert len(await front.blocks()) == 2


async def test_a_lost_block_is_not_an_absent_object(front: Front) -> None:
    await front.put("a", LARGE)
    (path,) = await front.blocks()
    await front.backend.blocks.delete_many((await front.repository()).namespace, [path])
    with pytest.raises(LostBlockError):
        await front.get("a")


async def test_an_upload_is_joined_once_and_an_aborted_one_never(front: Front) -> None:
    backend, caller = front.backend, front.caller
    template = with_headers(NOTHING, stored_headers("text/csv"))

    async def begun(path: str) -> pb.Upload:
        upload = await begin_upload(backend, caller, "lake", MAIN, path, template)
        for number in (1, 2):
            body = StreamedBody(pieces_of(LARGE), bytes_max=MANY)
            await store_part(backend, caller, "lake", upload, number, body)
        return upload

    upload = await begun("joined")
    calls = []

    def plan(recorded: object) -> PlannedObject:
        assert isinstance(recorded, dict)
        calls.append(recorded)
        parts = [recorded[1], recorded[2]]
        sizes = [part.size_bytes for part in parts]
        entry = replace(
            unpack(upload.template),
            size=sum(sizes),
            address=upload.address,
            md5=multipart_md5(part.md5 for part in parts),
            etag_parts=2,
        )
        return PlannedObject(parts, entry, PartList.of(sizes))

    async def complete(upload: pb.Upload) -> bool:
        done = await complete_upload(backend, caller, "lake", upload, bytes(32), plan)
        assert done.entry.size == 2 * len(LARGE)
        return done.is_repeat

    assert [await complete(upload), await complete(upload)] == [False, True]
    assert len(calls) == 1
    assert await whole((await front.get("joined"))[1]) == LARGE + LARGE

    upload = await begun("aborted")
    await abort_upload(backend, caller, "lake", upload)
    with pytest.raises(TarnError) as caught:
        await complete(upload)
    assert caught.value.reason is Reason.UPLOAD_NOT_FOUND


async def test_a_plan_that_fails_leaves_the_upload_open(front: Front) -> None:
    backend, caller = front.backend, front.caller
    upload = await begin_upload(backend, caller, "lake", MAIN, "a", NOTHING)

    def wrong(_: object) -> PlannedObject:
        raise LookupError("the front's own error")

    for _ in range(2):
        with pytest.raises(LookupError):
            await complete_upload(backend, caller, "lake", upload, bytes(32), wrong)
    await abort_upload(backend, caller, "lake", upload)

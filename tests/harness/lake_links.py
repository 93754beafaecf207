"""Addresses that clients write to themselves, as tests ask for them, write to them and link them."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from google.protobuf.timestamp_pb2 import Timestamp
from graveler_service import Service

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockExistsError, BlockInfo, BlockKey, PresignedWrite
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import link_service_pb2 as pb

__all__ = ["BODY", "ETAG", "PATH", "Bucket", "issue", "link", "written", "written_again"]

BODY = b"written by the client"
ETAG = hashlib.md5(BODY, usedforsecurity=False).hexdigest()
PATH = "raw/a"


class Bucket(MemBlockStore):
    """A store with ETags, to which clients write by URLs."""

    asked: list[tuple[BlockKey, int, int]]
    parts: frozenset[str] = frozenset()
    """Paths of the blocks whose upload was begun by URLs for parts and is not completed."""
    binds_writes: bool = True
    copied: frozenset[BlockKey] = frozenset()

    async def presign_write(
        self, key: BlockKey, seconds: int, part_count: int, *, once: bool = True
    ) -> PresignedWrite:
        self.asked = [*getattr(self, "asked", []), (key, seconds, part_count)]
        if part_count:
            self.parts |= {key.path}
        upload_id = f"upload of {key.path}" if part_count else ""
        return PresignedWrite(f"memory:{key.path}", (("If-None-Match", "*"),), upload_id=upload_id)

    async def copy_written(self, source: BlockKey, target: BlockKey, size: int, etag: str) -> None:
        if target in self.copied:
            if (await self.stat(target)).etag != etag:
                raise BlockExistsError(target)
            return
        if (await self.stat(source)).etag != etag:
            text = "it was written again meanwhile"
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.LINK_MISMATCH, text)
        await self.put(target, await self.read(source))
        self.copied |= {target}

    async def abort_writes(self, key: BlockKey) -> int:
        found = self.parts & {key.path}
        self.parts -= found
        return len(found)

    async def stat(self, key: BlockKey) -> BlockInfo:
        info = await super().stat(key)
        body = await self.read(key)
        return replace(info, etag=hashlib.md5(body, usedforsecurity=False).hexdigest())


async def issue(
    service: Service, path: str = PATH, **options: object
) -> pb.GetPhysicalAddressResponse:
    return await service.graveler.get_physical_address(
        service.admin,
        "lake",
        "main",
        path,
        **options,  # type: ignore[arg-type]
    )


async def written(
    service: Service, issued: pb.GetPhysicalAddressResponse, body: bytes = BODY
) -> None:
    namespace, _, path = issued.physical_address.rpartition("/data/")
    await service.replicas.blocks.put(BlockKey(namespace, f"data/{path}"), body)


async def written_again(
    service: Service, issued: pb.GetPhysicalAddressResponse, body: bytes = b"other bytes"
) -> None:
    """Does what a client can do by a URL without conditions."""
    namespace, _, path = issued.physical_address.rpartition("/data/")
    await service.replicas.blocks.delete_many(namespace, [f"data/{path}"])
    await written(service, issued, body)


async def link(
    service: Service,
    token: str,
    *,
    path: str = PATH,
    branch: str = "main",
    size: int = len(BODY),
    etag: str = ETAG,
    call: Call | None = None,
    condition: WriteCondition = UNCONDITIONAL,
    template: bytes = b"",
    modify_time: Timestamp | None = None,
) -> bytes:
    return await service.graveler.link_physical_address(
        call or service.admin,
        "lake",
        branch,
        path,
        token=token,
        size_bytes=size,
        etag=etag,
        condition=condition,
        template=template,
        modify_time=modify_time,
    )

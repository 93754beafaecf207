"""A service whose repository is deleted with its data, and what purges them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from graveler_service import Service, running_service
from tests.support.clock import ManualClock

from tarn.block.port import BlockKey, BlockStore
from tarn.client.erasures import ErasureClient
from tarn.collection.progress import CollectionProgress
from tarn.collection.purging import PURGE_FOLDER, Purger, PurgeReport
from tarn.kv.keys import InstallationKeys
from tarn.kv.namespace_records import Namespace, decode_namespace, encode_namespace
from tarn_proto.graveler.v1 import erasure_service_pb2 as pb

__all__ = ["ATTEMPT", "DAY_S", "KEYS", "PurgeLab", "purge_lab"]

KEYS = InstallationKeys("test")
DAY_S = 86_400
ATTEMPT = "a" * 32


class _Hasty:
    """The time of the service; sleeps let it pass."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.now_us, self.monotonic = clock.now_us, clock.monotonic

    async def sleep(self, seconds: float) -> None:
        self._clock.advance(seconds)


@dataclass
class PurgeLab:
    """A service, the blocks of its repository, and what purges them."""

    service: Service
    blocks: BlockStore
    namespace: str
    uid: str
    key: tuple[str, str]

    @property
    def client(self) -> ErasureClient:
        return ErasureClient(self.service.transport)

    @property
    def purger(self) -> Purger:
        return self.over(self.blocks)

    def over(self, blocks: BlockStore, client: ErasureClient | None = None) -> Purger:
        return Purger(
            client or self.client,
            lambda: self.service.admin,
            blocks,
            _Hasty(self.service.clock),
            random.Random(1),
            CollectionProgress(),
        )

    async def put(self, path: str, size: int = 4, namespace: str = "") -> str:
        await self.blocks.put(BlockKey(namespace or self.namespace, path), bytes(size))
        return path

    async def paths(self, namespace: str = "") -> set[str]:
        page = await self.blocks.list_page(namespace or self.namespace, "", "", 10_000)
        return {info.path for info in page if not info.path.startswith(PURGE_FOLDER)}

    async def delete(self, *, grace_days: float = 0) -> int:
        return await self.service.graveler.delete_repository(
            self.service.admin, "lake", with_data=True, grace_seconds=int(grace_days * DAY_S)
        )

    async def doomed(self) -> pb.DoomedNamespace:
        (found,) = await self.purger.doomed()
        return found

    async def pass_days(self, days: float) -> None:
        """Lets time pass, and logs in again: a caller token lives for an hour."""
        service = self.service
        service.clock.advance(days * DAY_S)
        session = await service.auth.log_in(
            service.anonymous,
            *self.key,
            now_us=service.clock.now_us(),
            nonce=random.randbytes(16),
        )
        self.service = replace(
            service, admin=replace(service.anonymous, caller_token=session.grant.caller_token)
        )

    async def purge(self, blocks: BlockStore | None = None, attempt: str = ATTEMPT) -> PurgeReport:
        return await self.over(blocks or self.blocks).purge(await self.doomed(), attempt)

    async def row(self) -> Namespace:
        partition, key = KEYS.graveler, KEYS.namespace(self.namespace)
        (found,) = await self.service.replicas.kv.get_many(partition, [key])
        assert found is not None
        return decode_namespace(found.value)

    async def set_row(self, row: Namespace) -> None:
        partition, key = KEYS.graveler, KEYS.namespace(self.namespace)
        (found,) = await self.service.replicas.kv.get_many(partition, [key])
        assert found is not None
        await self.service.replicas.kv.set_if(
            partition, key, encode_namespace(row), found.predicate
        )


@asynccontextmanager
async def purge_lab(tmp_path: Path) -> AsyncIterator[PurgeLab]:
    async with running_service(tmp_path / "service") as service:
        found = await service.graveler.get_repository(service.admin, "lake")
        made = await service.auth.create_credential(service.admin)
        key = (made.credential.access_key_id, made.secret_access_key)
        blocks = service.replicas.blocks
        yield PurgeLab(service, blocks, found.storage_namespace, found.instance_uid, key)

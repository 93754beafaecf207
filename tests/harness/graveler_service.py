"""graveler's services as callers see them: over the in-process transport, with the real auth."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from lake import Replicas, entry
from tests.support.clock import ManualClock, SeededIds

from tarn.block.mem import MemBlockStore
from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.core.access.service import Service as ServiceName
from tarn.core.collection import LIMITS, CollectionLimits
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.entry import unpack
from tarn.core.errors import Reason, TarnError
from tarn.gate.access import Access
from tarn.kv.mem import MemKv
from tarn.kv.port import Kv
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.methods import Endpoint
from tarn_auth.application import AuthApplication
from tarn_graveler.application import endpoints_of
from tarn_graveler.assembly import Graveler
from tarn_graveler.collection.online_deletion import OFFLINE, OnlineSettings

__all__ = ["Service", "reason_of", "running_service"]

SECRET = bytes(range(32))


@dataclass(frozen=True)
class Service:
    """The services and their callers.

    Attributes:
        admin: a call of the administrator as a gateway makes it, with the gateway's proof; so are those of `as_user`.
    """

    graveler: GravelerClient
    auth: AuthClient
    endpoints: list[Endpoint]
    transport: InProcessTransport
    auth_transport: InProcessTransport
    admin: Call
    anonymous: Call
    auth_endpoints: list[Endpoint]
    clock: ManualClock
    replicas: Replicas
    replica: Graveler
    admin_key: tuple[str, str] = field(repr=False)
    secret: bytes = field(default=SECRET, repr=False)

    async def logged_in(self) -> "Service":
        """Returns the same services with a new token of the admin: tests let days pass."""
        now_us = self.clock.now_us()
        nonce = now_us.to_bytes(16)
        session = await self.auth.log_in(
            self.anonymous, *self.admin_key, now_us=now_us, nonce=nonce
        )
        admin = replace(self.anonymous, caller_token=session.grant.caller_token)
        return replace(self, admin=replace(admin, service_token=await self.gateway_token()))

    @asynccontextmanager
    async def another_replica(self) -> AsyncIterator["Service"]:
        """Yields the same installation through another replica, which has its own caches."""
        clock = self.replicas.clock
        async with self.replicas.replica() as graveler:
            endpoints = endpoints_of(graveler, Access(self.auth, clock))
            transport = InProcessTransport(endpoints, clock)
            yield replace(
                self,
                graveler=GravelerClient(transport),
                endpoints=endpoints,
                transport=transport,
                replica=graveler,
            )
            await transport.close()

    async def as_user(self, user_id: str, role: str) -> Call:
        await self.auth.create_user(self.admin, user_id, [role])
        made = await self.auth.create_credential(self.admin, user_id=user_id)
        session = await self.auth.log_in(
            self.anonymous,
            made.credential.access_key_id,
            made.secret_access_key,
            now_us=1_793_491_200_000_000,
            nonce=user_id.encode().ljust(16, b"0")[:16],
        )
        return replace(self.admin, caller_token=session.grant.caller_token)

    async def gateway_token(self, name: str = "gateway") -> str:
        """Returns the token of a service, which lets a gateway stage addresses in the namespace."""
        return (await self.auth.authorize_service(self.anonymous, name)).caller_token

    def entry(self, size: int, operation_id: str = "") -> bytes:
        """Returns an entry as a gateway makes it: identified by its size, with an address of now."""
        address = (self.clock.now_us() // 1000).to_bytes(6, "big") + (size + 1).to_bytes(10, "big")
        return entry(size, operation_id, address)

    async def stage(
        self,
        path: str,
        packed: bytes,
        branch: str = "main",
        condition: WriteCondition = UNCONDITIONAL,
        *,
        call: Call | None = None,
        repository: str = "lake",
        parts: bytes = b"",
    ) -> bool:
        """Stages an entry as a gateway does, for a call of the admin or another one; returns whether it is a repeat."""
        call = replace(call or self.admin, service_token=await self.gateway_token())
        found = await self.replicas.made[0].repositories.get(repository)
        place = (repository, found.instance_uid, branch, path, packed)
        return await self.graveler.stage(call, *place, condition, parts=parts)

    async def put(self, path: str, size: int, branch: str = "main") -> None:
        await self.stage(path, self.entry(size), branch)

    async def size(self, ref: str, path: str) -> int:
        return unpack((await self.graveler.lookup(self.admin, "lake", ref, path)).entry).size


@asynccontextmanager
async def running_service(
    folder: Path,
    kv: Kv | None = None,
    collection: CollectionLimits = LIMITS,
    store: Callable[[ManualClock], MemBlockStore] = MemBlockStore,
    online: OnlineSettings = OFFLINE,
    *,
    keeps_reads: bool = False,
    keeps_events: bool = False,
    namespace_prefix: str = "local://",
) -> AsyncIterator[Service]:
    """Yields one replica with a repository `lake`, and its admin; without a `kv`, in memory. Auth has a store of its
    own, unless there are events: then it is that of the replica."""
    replicas = Replicas(
        folder,
        kv,
        collection,
        store,
        online,
        keeps_reads=keeps_reads,
        keeps_events=keeps_events,
        namespace_prefix=namespace_prefix,
    )
    auth_kv = replicas.kv if keeps_events else MemKv()
    ids = SeededIds(replicas.clock, seed=99)
    anonymous = Call("test", "", 1e9)
    auth = AuthApplication(
        auth_kv,
        "test",
        SECRET,
        replicas.clock,
        ids,
        certificates={each: each for each in ServiceName},
        keeps_events=keeps_events,
    )
    async with auth, replicas.replica() as graveler:
        auth_transport = InProcessTransport(auth.endpoints_in_process, replicas.clock)
        client = AuthClient(auth_transport)
        endpoints = endpoints_of(graveler, Access(client, replicas.clock))
        transport = InProcessTransport(endpoints, replicas.clock)
        made = await client.set_up(anonymous, SECRET, "root")
        session = await client.log_in(
            anonymous,
            made.credential.access_key_id,
            made.secret_access_key,
            now_us=replicas.clock.now_us(),
            nonce=bytes(16),
        )
        proof = (await client.authorize_service(anonymous, ServiceName.GATEWAY)).caller_token
        admin = replace(anonymous, caller_token=session.grant.caller_token, service_token=proof)
        made_service = Service(
            GravelerClient(transport),
            client,
            endpoints,
            transport,
            auth_transport,
            admin,
            anonymous,
            list(auth.endpoints),
            replicas.clock,
            replicas,
            graveler,
            (made.credential.access_key_id, made.secret_access_key),
        )
        await made_service.graveler.create_repository(admin, "lake")
        yield made_service
        await transport.close()
        await auth_transport.close()
    await replicas.tasks.close()


async def reason_of(work: object) -> Reason:
    """Returns the reason why a call is refused; fails if it is not."""
    with pytest.raises(TarnError) as raised:
        await work  # type: ignore[misc]
    return raised.value.reason

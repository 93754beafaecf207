"""Graveler replicas on a real node; one of them loses a chosen exchange with the node.

A test repeats one operation and loses another exchange each time, until a run loses none: then every
exchange was lost once.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from cassandra_lake import ShiftedClock, replica_on
from cassandra_proxies import statement_id
from permits import permit_for
from slowness import scaled
from tests.support.faults.tcp_proxy import Loss, TcpProxy
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.block.mem import MemBlockStore
from tarn.core.errors import Kind, TarnError
from tarn.gate.permits import RepositoryPermit
from tarn.kv.cassandra import CassandraKv, CassandraLimits, CassandraSettings, open_cassandra
from tarn.kv.keys import InstallationKeys
from tarn.kv.records import Repository
from tarn.rpc.process.system import SystemIds
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.branches import BranchHandler
from tarn_graveler.handlers.repositories import RepositoryHandler
from tarn_graveler.handlers.tags import TagHandler
from tarn_proto.graveler.v1 import branch_service_pb2 as branch_pb
from tarn_proto.graveler.v1 import repository_service_pb2 as repository_pb
from tarn_proto.graveler.v1 import tag_service_pb2 as tag_pb

__all__ = ["Ending", "ReplicaPair", "Losing", "Replica", "pairs_on"]

WRITES = ("cas_insert", "cas_update", "cas_upsert", "cas_delete_if", "plain_set")
"""Statements that change a row: they are counted, and one of them is lost."""
_WELL_SECONDS = scaled(20.0)
_PATIENCE_SECONDS = scaled(10.0)
"""Time for which a patient store repeats a request. Each loss closes a connection, and on a busy machine the driver
takes some seconds to open another one."""
_BEHIND_SECONDS = 4.0
"""How far the clock of the sound replica is behind the others, in seconds."""
_NONE = cast("Repository", None)
"""Its handlers do not look at the repository of the permit."""


class Losing(enum.Enum):
    """The fate of the chosen request."""

    ANSWER = "it is applied, and its answer is lost"
    LATE_NEXT = "it is applied directly before the next write of its replica"
    LATE_END = "it is applied after its caller was answered and other operations ran"


class Ending(enum.Enum):
    """The outcome that a caller gets."""

    DONE = "done"
    REFUSED = "not done"
    UNKNOWN = "perhaps done"


class Losses:
    """Chooses the request that is lost.

    Attributes:
        lost: the statement that was lost since `arm`; empty for none.
    """

    def __init__(self, proxy: TcpProxy, keyspace: str) -> None:
        self._proxy = proxy
        self._markers = {statement_id(name, keyspace): name for name in WRITES}
        self._number: int | None = None
        self._losing = Losing.ANSWER
        self.lost = ""
        proxy.judge = self._judge

    def arm(self, number: int, losing: Losing) -> None:
        """Loses the write of that number, counted from 0 from now on."""
        self._number, self._losing, self.lost = number, losing, ""

    def disarm(self) -> None:
        """Stops losing requests."""
        self._number = None

    async def land(self) -> None:
        """Applies late requests now."""
        async with asyncio.timeout(_WELL_SECONDS):
            await self._proxy.land()

    async def _judge(self, data: bytes) -> Loss | None:
        name = next((name for marker, name in self._markers.items() if marker in data), None)
        if name is None or self._number is None:
            return None
        if self.lost:
            if self._losing is Losing.LATE_NEXT:
                await self.land()
            return None
        self._number -= 1
        if self._number >= 0:
            return None
        self.lost = name
        return Loss.ANSWER if self._losing is Losing.ANSWER else Loss.LATE


_InRepository = (
    branch_pb.CreateBranchRequest
    | branch_pb.DeleteBranchRequest
    | tag_pb.CreateTagRequest
    | tag_pb.DeleteTagRequest
)


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica, and its services for a caller with all permissions."""

    graveler: Graveler
    kv: CassandraKv

    async def create_repository(self, name: str, namespace: str = "") -> None:
        request = repository_pb.CreateRepositoryRequest(
            repository_id=name, storage_namespace=namespace
        )
        await self._repositories.CreateRepository(request, permit_for(request, _NONE))

    async def delete_repository(self, name: str) -> None:
        request = repository_pb.DeleteRepositoryRequest(repository_id=name)
        await self._repositories.DeleteRepository(request, permit_for(request, _NONE))

    async def create_branch(self, repository: str, name: str) -> None:
        request = branch_pb.CreateBranchRequest(repository_id=repository, branch_id=name)
        await self._branches.CreateBranch(
            request, permit_for(request, await self.graveler.repositories.get(repository))
        )

    async def delete_branch(self, repository: str, name: str) -> None:
        request = branch_pb.DeleteBranchRequest(repository_id=repository, branch_id=name)
        await self._branches.DeleteBranch(
            request, permit_for(request, await self.graveler.repositories.get(repository))
        )

    async def create_tag(self, repository: str, name: str) -> None:
        request = tag_pb.CreateTagRequest(repository_id=repository, tag_id=name)
        await self._tags.CreateTag(
            request, permit_for(request, await self.graveler.repositories.get(repository))
        )

    async def delete_tag(self, repository: str, name: str) -> None:
        request = tag_pb.DeleteTagRequest(repository_id=repository, tag_id=name)
        await self._tags.DeleteTag(
            request, permit_for(request, await self.graveler.repositories.get(repository))
        )

    async def _permit(self, request: _InRepository) -> RepositoryPermit:
        return permit_for(request, await self.graveler.repositories.get(request.repository_id))

    @property
    def _repositories(self) -> RepositoryHandler:
        return RepositoryHandler(self.graveler)

    @property
    def _branches(self) -> BranchHandler:
        return BranchHandler(self.graveler)

    @property
    def _tags(self) -> TagHandler:
        return TagHandler(self.graveler)

    async def until_well(self) -> None:
        """Returns when its store answers again."""
        async with asyncio.timeout(_WELL_SECONDS):
            while True:
                try:
                    await self.kv.get_many(InstallationKeys("test").graveler, [b"well?"])
                    return
                except TarnError:
                    await asyncio.sleep(0.05)


@dataclass(slots=True)
class ReplicaPair:
    """A replica that loses exchanges, and one that does not.

    Attributes:
        is_patient: whether the store of the losing replica repeats lost requests itself, as in
            production; if not, its caller must.
        failure: the error that the last caller was told; empty for none.
    """

    name: str
    hurt: Replica
    sound: Replica
    losses: Losses
    clock: ShiftedClock
    losing: Losing
    is_patient: bool
    count: int = 0
    failure: str = ""

    def new_name(self) -> str:
        self.count += 1
        return f"{self.name}-{self.count}"

    async def told(self, work: Awaitable[object]) -> Ending:
        """Returns the outcome that the caller of a replica gets."""
        self.failure = ""
        try:
            await work
        except TarnError as error:
            self.failure = f"{error.reason}: {error.message}"
            return Ending.UNKNOWN if error.kind is Kind.UNKNOWN_OUTCOME else Ending.REFUSED
        return Ending.DONE


@asynccontextmanager
async def pairs_on(
    nodes: CassandraNodes, keyspace: str, folder: Path
) -> AsyncIterator[list[ReplicaPair]]:
    """Yields a pair for each way to lose a request, with a patient store and, where it matters, with an
    impatient one.

    All pairs are replicas of one installation over one keyspace.
    """
    clock = ShiftedClock()
    blocks = MemBlockStore(clock)
    centre = nodes.LOCAL_DATACENTER
    async with AsyncExitStack() as stack:

        async def replica(
            points: tuple[str, ...], name: str, limits: CassandraLimits, shift_seconds: float = 0.0
        ) -> Replica:
            settings = CassandraSettings(points, centre, keyspace, 1)
            own = ShiftedClock(shift_seconds)
            kv = await open_cassandra(settings, clock=own, ids=SystemIds(own), limits=limits)
            stack.push_async_callback(kv.close)
            graveler = await stack.enter_async_context(replica_on(kv, blocks, folder / name, clock))
            return Replica(graveler, kv)

        async def pair(losing: Losing, *, is_patient: bool) -> ReplicaPair:
            name = f"{losing.name}-{'patient' if is_patient else 'impatient'}".lower()
            name = name.replace("_", "-")
            proxy = await stack.enter_async_context(TcpProxy("127.0.0.1", nodes.native_port))
            limits = (
                CassandraLimits(retry_seconds=_PATIENCE_SECONDS)
                if is_patient
                else CassandraLimits(attempts=1, retry_seconds=0.0)
            )
            hurt = await replica((f"127.0.0.1:{proxy.port}",), name, limits)
            return ReplicaPair(
                name, hurt, sound, Losses(proxy, keyspace), clock, losing, is_patient
            )

        # Its clock is behind: without the read before a write, its rows would be older than existing ones.
        sound = await replica(nodes.contact_points, "sound", CassandraLimits(), -_BEHIND_SECONDS)
        pairs = [await pair(losing, is_patient=True) for losing in Losing]
        pairs += [
            await pair(losing, is_patient=False) for losing in (Losing.LATE_NEXT, Losing.LATE_END)
        ]
        yield pairs

"""Two replicas of graveler on one store, as their callers see them, for the state machine."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cassandra_lake import ShiftedClock

from tarn.aio.task_set import TaskSet
from tarn.block.mem import MemBlockStore
from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.core.collection import LIMITS
from tarn.core.listing.breaks import BreakRule
from tarn.gate.access import Access
from tarn.kv.mem import MemKv
from tarn.kv.port import Kv
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.process.system import SystemIds
from tarn.rpc.wire.call import Call
from tarn_auth.application import AuthApplication
from tarn_graveler.application import endpoints_of
from tarn_graveler.assembly import Graveler, GravelerSettings, assemble
from tarn_graveler.branch.leaps import LEAP_ROWS_MIN
from tarn_graveler.config import open_committed
from tarn_graveler.records.settings import RULES_CACHE_SECONDS

__all__ = ["TwoReplicas", "running_lab"]

_SECRET = bytes(range(32))
_DROP_DELAY_SECONDS = 60.0
_RANGE_ROWS = 4
"""Mean number of rows of a range, so that listings of a few paths have several."""
_ANY_AGE = replace(LIMITS, staging_us=1 << 62, ahead_us=1 << 62)
"""The machine chooses addresses itself; no collection runs."""


class LabClock(ShiftedClock):
    """Its shift moves the wall clock and the clock that caches expire by."""

    def monotonic(self) -> float:
        return super().monotonic() + self.shift_seconds


@dataclass(frozen=True)
class TwoReplicas:
    """Two replicas and their callers.

    Attributes:
        clients: one of each replica.
    """

    clients: tuple[GravelerClient, ...]
    clock: LabClock
    replicas: tuple[Graveler, ...]
    _auth: AuthClient
    _key: tuple[str, str]
    _anonymous: Call

    async def log_in(self) -> Call:
        """Returns the context of an administrator's calls by a gateway, for some hours of the lab's clock."""
        session = await self._auth.log_in(
            self._anonymous, *self._key, now_us=self.clock.now_us(), nonce=os.urandom(16)
        )
        gateway = await self._auth.authorize_service(self._anonymous, "gateway")
        return replace(
            self._anonymous,
            caller_token=session.grant.caller_token,
            service_token=gateway.caller_token,
        )

    def let_rules_settle(self) -> None:
        """Lets the time pass after which every replica refuses writes by the newest rules."""
        self.clock.shift_seconds += RULES_CACHE_SECONDS + 0.1

    async def clean(self) -> None:
        """Lets the drop delay pass; drops every token that no record names."""
        for replica in self.replicas:
            self.clock.shift_seconds += _DROP_DELAY_SECONDS + 1
            await replica.cleaner.drop_due()


@asynccontextmanager
async def running_lab(kv: Kv, folder: Path) -> AsyncIterator[TwoReplicas]:
    """Yields two replicas on a store. Authorisation is real, in the same process."""
    clock = LabClock()
    ids = SystemIds(clock)
    anonymous = Call("state machine", "", 1e9)
    async with AsyncExitStack() as stack:
        auth = await stack.enter_async_context(
            AuthApplication(MemKv(), "test", _SECRET, clock, ids)
        )
        auth_transport = InProcessTransport(auth.endpoints_in_process, clock)
        stack.push_async_callback(auth_transport.close)
        auth_client = AuthClient(auth_transport)
        made = await auth_client.set_up(anonymous, _SECRET, "root")
        blocks = MemBlockStore(clock)
        tasks = TaskSet()
        stack.push_async_callback(tasks.close)
        replicas, clients = [], []
        for number in range(2):
            committed = await stack.enter_async_context(
                open_committed(blocks, folder / f"cache{number}", rule=BreakRule(_RANGE_ROWS))
            )
            replica = assemble(
                settings=GravelerSettings(
                    "test",
                    drop_delay_seconds=_DROP_DELAY_SECONDS,
                    # One replica leaps over every hidden row, the other reads them.
                    leap_rows_min=1 if number else LEAP_ROWS_MIN,
                    collection=_ANY_AGE,
                ),
                kv=kv,
                blocks=blocks,
                committed=committed,
                clock=clock,
                ids=SystemIds(clock),
                tasks=tasks,
            )
            transport = InProcessTransport(endpoints_of(replica, Access(auth_client, clock)), clock)
            stack.push_async_callback(transport.close)
            replicas.append(replica)
            clients.append(GravelerClient(transport))
        key = (made.credential.access_key_id, made.secret_access_key)
        yield TwoReplicas(tuple(clients), clock, tuple(replicas), auth_client, key, anonymous)

"""Compactors: they compact every branch again and again while clients work on it (rule 6).

A compaction is no write: all other promises must hold beside it (I7). The history records it because it seals.
"""

import asyncio

from tests.sim.outcomes import refuse
from tests.sim.workload import Client
from tests.support.check.history import OpKind, Outcome

from tarn.core.errors import Kind, TarnError
from tarn_proto.graveler.v1 import compaction_service_pb2 as pb

__all__ = ["Compactor"]

_SECONDS = 10.0
_FORCED = 0.5


class Compactor(Client):
    """Compacts its branches in turn; half of the requests do not care whether another compaction runs."""

    async def run(self) -> None:
        """Takes a branch at a time, at random."""
        while self.world.has_faults:
            await asyncio.sleep(self.random.expovariate(1 / self.world.plan.compact_seconds))
            await self.compact(self.random.choice(self.branches))

    async def compact(self, branch: str) -> None:
        """Makes one compaction; any answer but a sign of damaged data is right."""
        repository_id, branch_id = branch.split("/")
        is_forced = self.random.random() < _FORCED
        op = self.history.begin(self.name, OpKind.COMPACT, branch)
        try:
            done = await self.graveler.compact_branch(
                self.transport.call(_SECONDS), repository_id, branch_id, force=is_forced
            )
        except TarnError as error:
            if error.kind is Kind.CORRUPT:
                self.world.problem(f"compaction of {branch}: {error!r}")
            told = str(error.reason)
            refuse(self.history, op, error)
        else:
            told = pb.CompactionOutcome.Name(done.outcome).removeprefix("COMPACTION_OUTCOME_")
            self.history.finish(op, Outcome.OK, told)
        self.world.statistics[f"compaction: {told.lower().replace('_', ' ')}"] += 1

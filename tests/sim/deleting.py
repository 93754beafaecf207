"""Conditional deletes: users who delete the version that they saw, beside others who replace it or create the next one.

As in `put_if`, each request is repeated with its operation while its outcome is unknown, as SDKs do.
"""

from __future__ import annotations

import asyncio
import random

from tests.sim.outcomes import refuse
from tests.sim.workload import Client, observed
from tests.support.check.history import ABSENT, OpKind, Outcome

from tarn.core.condition import WriteCondition
from tarn.core.entry import size_of, tombstone_of
from tarn.core.errors import TarnError

__all__ = ["Deleter"]

_ATTEMPTS = 3


class Deleter(Client):
    """Deletes by condition, and creates where nothing is left."""

    async def run(self) -> None:
        """Performs all operations of this user."""
        plan = self.world.plan
        choices = random.Random(f"deleter {plan.seed} {self.name}")
        for _ in range(plan.operations):
            branch, key = choices.choice(self.branches), choices.choice(self.keys)
            if choices.random() < 0.7:
                await self.get(branch, key)
            if self.saw(branch, key) == ABSENT:
                await self.put_if(branch, key)
            else:
                await self.delete_if(branch, key, with_size=choices.random() < 0.3)
            await asyncio.sleep(choices.expovariate(1 / plan.think_seconds))

    async def delete_if(self, branch: str, key: str, *, with_size: bool) -> None:
        """Deletes the value that this user saw, if it is still there."""
        expected, values = self.saw(branch, key), self.world.values
        operation_id = f"{self.name}-{len(self.history.ops)}"
        condition = WriteCondition(if_match=values.etag(expected))
        if with_size and values.may_be_equal(expected):  # the entry of an upload is not at hand
            condition = WriteCondition(
                if_match=condition.if_match, size_bytes=size_of(values.packed(expected))
            )
        first: float | None = None
        for _ in range(_ATTEMPTS):
            op = self.history.begin(self.name, OpKind.DELETE, branch, key, ABSENT, inv=first)
            op.expected, first = expected, op.inv
            try:
                await self._stage_tombstone(branch, key, operation_id, condition)
            except TarnError as error:
                op.observed = observed(self.world, error)
                refuse(self.history, op, error)
                if op.outcome is Outcome.FAIL:
                    return
            else:
                self.history.finish(op, Outcome.OK)
                self.world.statistics["conditional deletes"] += 1
                return
            await asyncio.sleep(self.random.uniform(0, 1.0))

    async def _stage_tombstone(
        self, branch: str, key: str, operation_id: str, condition: WriteCondition
    ) -> None:
        repository_id, branch_id = branch.split("/")
        home = await self.repositories.get(self.call(), repository_id)
        place = (repository_id, home.instance_uid, branch_id, key)
        await self.graveler.stage(self.call(), *place, tombstone_of(operation_id), condition)

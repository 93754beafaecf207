"""Bucket views: users who work through a view, and an administrator who points it elsewhere, deletes it and makes it
again (docs/design/bucket-views.md).

A user resolves the view as a gateway does: sometimes, and then goes on with what it knows. Each call names the version
that the user knows, so it is an operation on the branch that this version shows. All invariants of that branch hold for
it; I12 says when it may use the branch at all.
"""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.sim.outcomes import outcome_of, refuse
from tests.sim.transport import GATEWAY_TOKEN
from tests.sim.views import MOVED, Change, version_of
from tests.sim.workload import Client
from tests.support.check.history import History, Op, Outcome

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1.bucket_service_pb2 import BucketView

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["ViewAdmin", "ViewUser"]

VIEW = "sales"
_ADMIN_SECONDS = 10.0
_RESOLVE_RATE = 0.3
_ACTS = {"put": 5, "get": 6, "list_page": 3, "delete": 2, "delete_many": 1}


class ViewAdmin(Client):
    """Points the view to one branch after the other, or deletes it and makes it again.

    It is the only one who changes the view, and it looks after each answer that it did not get.
    """

    def __init__(self, world: World, name: str, branches: list[str]) -> None:
        super().__init__(world, name, branches)
        self._views = world.views
        self._at = 0

    async def run(self) -> None:
        """Changes the view until the faults end."""
        while self.world.has_faults:
            await asyncio.sleep(self.random.expovariate(1 / self.world.plan.view_seconds))
            if self.world.has_faults:
                if self.random.random() < 0.25:
                    await self._delete_view()
                    await asyncio.sleep(self.random.choice([0.0, 0.05]))
                    await self.create()
                else:
                    await self._point()

    def _target(self) -> tuple[str, str]:
        self._at += 1
        repository_id, _, ref = self.branches[self._at % len(self.branches)].partition("/")
        return repository_id, ref

    def _call(self) -> Call:
        return self.transport.call(_ADMIN_SECONDS)

    async def create(self) -> None:
        """Creates the view; returns when it is there."""
        change = self._begin()
        target = self._target()
        while True:
            try:
                view = await self.graveler.create_bucket_view(self._call(), VIEW, *target)
            except TarnError as error:
                self._expect(error, {Reason.BUCKET_EXISTS})
                found = await self._look()
                if found is not None:
                    return self._done(change, version_of(found))
                await asyncio.sleep(0.05)
            else:
                return self._done(change, version_of(view))

    async def _point(self) -> None:
        before = await self._look()
        assert before is not None, "only this administrator deletes it"
        target, is_conditional = self._target(), self.random.random() < 0.5
        change = self._begin()
        try:
            view = await self.graveler.point_bucket_view(
                self._call(), VIEW, *target, etag=before.etag if is_conditional else ""
            )
        except TarnError as error:
            self._expect(error, {Reason.BUCKET_MOVED} if is_conditional else set())
            # It may be done now, or later; a conditional one at most once, and never after another change.
            found = await self._look()
            if found is not None and found.etag != before.etag:
                self._done(change, version_of(found))
            elif outcome_of(error) is Outcome.FAIL:
                self._views.changes.remove(change)
        else:
            if is_conditional and view.etag != _next(before.etag):
                self.world.problem(f"a change of {before.etag} made {view.etag}")
            self._done(change, version_of(view))

    async def _delete_view(self) -> None:
        change = self._begin()
        while True:
            try:
                await self.graveler.delete_bucket_view(self._call(), VIEW)
            except TarnError as error:
                self._expect(error, {Reason.BUCKET_NOT_FOUND})
                if error.reason is Reason.BUCKET_NOT_FOUND:
                    return self._done(change, "")
                await asyncio.sleep(0.05)
            else:
                return self._done(change, "")

    async def _look(self) -> BucketView | None:
        while True:
            try:
                return await self.graveler.get_bucket_view(self._call(), VIEW)
            except TarnError as error:
                if error.reason is Reason.BUCKET_NOT_FOUND:
                    return None
                self._expect(error, set())
                await asyncio.sleep(0.05)

    def _expect(self, error: TarnError, reasons: set[Reason]) -> None:
        """Reports an answer that is neither one of these refusals nor the effect of a fault."""
        is_fault = error.kind in {
            Kind.UNAVAILABLE,
            Kind.DEADLINE,
            Kind.UNKNOWN_OUTCOME,
            Kind.EXHAUSTED,
        }
        if error.reason not in reasons and not is_fault:
            self.world.problem(f"the administrator of the view got {error!r}")

    def _begin(self) -> Change:
        change = Change(self.history.tick())
        self._views.changes.append(change)
        return change

    def _done(self, change: Change, version: str) -> None:
        change.end, change.version = self.history.tick(), version
        self.world.statistics["views: changes"] += 1


def _next(etag: str) -> str:
    uid, _, generation = etag.partition(":")
    return f"{uid}:{int(generation) + 1}"


class ViewUser(Client):
    """Performs one operation after another through the view."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, [])
        self._view: BucketView | None = None
        self._choices = random.Random(f"views {world.plan.seed} {name}")

    def call(self) -> Call:
        """Returns a call through the version of the view that this user knows."""
        call = super().call()
        return call if self._view is None else replace(call, bucket=f"{VIEW}:{self._view.etag}")

    def _finish_read(self, op: Op, error: TarnError, begun: float) -> None:
        if error.reason in MOVED:
            refuse(self.history, op, error)
        else:
            super()._finish_read(op, error, begun)

    async def run(self) -> None:
        """Performs all operations of this user."""
        plan, history = self.world.plan, self.history
        for _ in range(plan.operations):
            if self._view is None or self._choices.random() < _RESOLVE_RATE:
                await self._resolve()
            if (view := self._view) is not None:
                before = len(history.ops)
                (act,) = self._choices.choices([*_ACTS], [*_ACTS.values()])
                branch = f"{view.repository_id}/{view.ref}"
                await getattr(self, act)(branch, self.random.choice(self.keys))
                self._note(history, before, version_of(view))
            await asyncio.sleep(self.random.expovariate(1 / plan.think_seconds))

    async def _resolve(self) -> None:
        self._view = None
        call = replace(self.call(), service_token=GATEWAY_TOKEN)
        try:
            self._view = await self.graveler.get_bucket_view(call, VIEW)
        except TarnError:
            self.world.statistics["views: not resolved"] += 1

    def _note(self, history: History, before: int, version: str) -> None:
        for op in history.ops[before:]:
            if op.proc == self.name:
                self.world.views.uses.append((op, version))
                outcome = "moved" if op.reason in MOVED else str(op.outcome)
                self.world.statistics[f"views: {outcome}"] += 1
                if op.reason in MOVED and not math.isinf(op.end):
                    self._view = None  # as a gateway, which resolves again

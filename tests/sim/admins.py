"""Admins: they delete and create again the branches and repositories that clients work on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tests.sim.outcomes import note_of, note_refusal, outcome_of
from tests.sim.versioning import REPOSITORY
from tests.sim.workload import NO_BRANCH, Client
from tests.support.check.history import MERGES, OpKind, Outcome

from tarn.client.reflogs import ReflogClient
from tarn.core.errors import Kind, TarnError

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["AT_OLD_COMMITS", "RESTORED", "Admin", "Namesakes"]

AT_OLD_COMMITS = "branches: at old commits"
RESTORED = "branches: restored"
"""Statistics of a run."""

_REPOSITORY_SECONDS = 5.5
_HALF_WAY_TRIES = 20
_NAMESAKES = 10
_ADMIN_SECONDS = 10.0
_RECENT = 12


class Admin(Client):
    """Deletes and creates again branches or repositories while clients work on them.

    A label `<repository>/main` means the repository, which is created empty; any other label means a
    branch, which is created at the commit of `lake/main`. Beside collections it is also created at an older
    commit, or restored.
    """

    _turns = 0

    def __init__(self, world: World, name: str, branches: list[str]) -> None:
        super().__init__(world, name, branches)
        self._reflogs = ReflogClient(self.transport)
        # Drawn apart, so that runs without collections stay as they are.
        self._ways = random.Random(f"ways {world.plan.seed} {name}")

    async def run(self) -> None:
        """Takes the labels in turn."""
        while self.world.has_faults:
            await asyncio.sleep(self.random.expovariate(1 / self.world.plan.drop_delay_seconds))
            for branch in self.branches:
                if self.world.has_faults:
                    await self.turn(branch)

    async def turn(self, branch: str) -> None:
        """Deletes, waits, and creates again."""
        await self.remove(branch)
        await asyncio.sleep(self.random.expovariate(2.0))
        if branch.endswith("/main"):
            # A replica may cache a repository for five seconds; until then it does not see a new one of that name.
            await asyncio.sleep(_REPOSITORY_SECONDS)
        await self.create(branch)

    async def remove(self, branch: str) -> None:
        """Deletes until it succeeds. An attempt whose answer is lost is recorded as an operation of its own."""
        repository_id, branch_id = branch.split("/")
        was_lost = False
        while True:
            op = self.history.begin(self.name, OpKind.REMOVE, branch)
            op.is_stepwise = branch_id == "main"
            try:
                await self._remove(repository_id, branch_id)
            except TarnError as error:
                outcome = outcome_of(error)
                note_refusal(op, error)
                if error.reason in NO_BRANCH:
                    is_ours = Outcome.OK if was_lost else Outcome.FAIL
                    self.history.finish(op, is_ours, "removed before")
                    return
                if branch_id == "main":
                    outcome = Outcome.INFO  # some of its steps may have been done
                was_lost = was_lost or outcome is Outcome.INFO
                self.history.finish(op, outcome, note_of(error))
                await asyncio.sleep(0.1)
            else:
                self.history.finish(op, Outcome.OK)
                return

    async def _remove(self, repository_id: str, branch_id: str) -> None:
        call = self.transport.call(_ADMIN_SECONDS)
        if branch_id != "main":
            await self.graveler.delete_branch(call, repository_id, branch_id)
        else:
            await self.graveler.delete_repository(call, repository_id)

    async def create(self, branch: str) -> None:
        """Creates until it succeeds: a branch, or an empty repository."""
        repository_id, branch_id = branch.split("/")
        self._turns += 1
        namespace = f"local://{repository_id}-{self.name}-{self._turns}" if self._turns % 2 else ""
        half_way = 0
        while True:
            source, way = "", ""
            if branch_id != "main":
                source, way = await self._source(branch_id)
            op = self.history.begin(self.name, OpKind.CREATE, branch)
            op.is_stepwise = branch_id == "main"
            op.commit_id, op.is_restore = source, way == RESTORED
            try:
                if way == RESTORED:
                    call = self.transport.call(_ADMIN_SECONDS)
                    await self._reflogs.restore_branch(call, repository_id, branch_id)
                else:
                    await self._create(repository_id, branch_id, source, namespace)
            except TarnError as error:
                outcome = outcome_of(error)
                note_refusal(op, error)
                exists = error.kind is Kind.ALREADY_EXISTS
                is_there = await self._is_there(repository_id, branch_id) if exists else None
                if is_there:
                    # An attempt whose answer was lost has created it, in this turn or in an older one.
                    self.history.finish(op, Outcome.FAIL, "made before")
                    return
                if is_there is False:
                    half_way += 1
                    if half_way % _HALF_WAY_TRIES == 0:
                        text = f"{branch} exists ({error.message}) and is not there"
                        if half_way == _HALF_WAY_TRIES:
                            self.world.problem(text)
                        self._turns += 1
                        namespace = f"local://{repository_id}-{self.name}-{self._turns}"
                if branch_id == "main" and not exists:
                    outcome = Outcome.INFO  # some of its steps may have been done
                self.history.finish(op, outcome, note_of(error))
                await asyncio.sleep(0.1)
            else:
                self.history.finish(op, Outcome.OK)
                if way:
                    self.world.statistics[way] += 1
                return

    async def _source(self, branch_id: str) -> tuple[str, str]:
        """Draws the commit at which a branch begins, and how, if not at the commit of main."""
        way = ""
        if self.world.plan.collecting is not None:
            way = self._ways.choice(["", AT_OLD_COMMITS, RESTORED])
        source = ""
        if way == AT_OLD_COMMITS:
            source = self._old_commit()
        elif way == RESTORED:
            source = await self._head_at_deletion(branch_id)
        return (source, way) if source else (await self._main_commit(), "")

    def _old_commit(self) -> str:
        """Returns one of the newest acknowledged commits of the repository; empty if there is none."""
        made = [
            op.commit_id
            for op in self.history.ops
            if op.is_ok
            and op.kind in {OpKind.COMMIT, *MERGES}
            and not op.is_claim
            and op.branch.startswith(f"{REPOSITORY}/")
        ]
        return self._ways.choice(made[-_RECENT:]) if made else ""

    async def _head_at_deletion(self, branch_id: str) -> str:
        """Returns the head that a deleted branch had; empty if none is known."""
        try:
            found = await self._reflogs.list_deleted_branches(self.call(), REPOSITORY)
        except TarnError:
            return ""
        heads = {each.branch_id: each.commit_id for each in found.branches}
        return heads.get(branch_id, "")

    async def _is_there(self, repository_id: str, branch_id: str) -> bool | None:
        """Returns whether it exists; None if there is no answer."""
        try:
            await self.graveler.get_branch(self.call(), repository_id, branch_id)
        except TarnError as error:
            return False if error.kind is Kind.NOT_FOUND else None
        return True

    async def _main_commit(self) -> str:
        while True:
            try:
                found = await self.graveler.get_branch(self.call(), "lake", "main")
            except TarnError:
                await asyncio.sleep(0.1)
            else:
                return found.commit_id

    async def _create(
        self, repository_id: str, branch_id: str, source: str, namespace: str
    ) -> None:
        call = self.transport.call(_ADMIN_SECONDS)
        if branch_id != "main":
            await self.graveler.create_branch(call, repository_id, branch_id, source)
        else:
            await self.graveler.create_repository(
                call, repository_id, storage_namespace=namespace, default_branch_id=branch_id
            )


class Namesakes(Client):
    """Creates a branch and a tag of one name concurrently: at most one of the two may be acknowledged."""

    async def run(self) -> None:
        """Takes one name after another; each name is new, so no earlier request affects it."""
        for number in range(_NAMESAKES):
            await asyncio.sleep(self.random.expovariate(1.0))
            if not self.world.has_faults:
                return
            name = f"both-{number}"
            async with asyncio.TaskGroup() as both:
                branch = both.create_task(
                    self._made(self.graveler.create_branch(self.call(), "lake", name, "main"))
                )
                tag = both.create_task(
                    self._made(self.graveler.create_tag(self.call(), "lake", name, "main"))
                )
            if branch.result() and tag.result():
                self.world.problem(f"lake has a branch and a tag {name}, both acknowledged")
                return
            self.world.statistics["namesakes"] += branch.result() or tag.result()

    async def _made(self, creation: Coroutine[Any, Any, object]) -> bool:
        await asyncio.sleep(self.random.choice([0.0, 0.0, 0.05]))
        try:
            await creation
        except TarnError:
            return False
        return True

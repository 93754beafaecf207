"""What clients do, and how their answers are written down."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from typing import Any

from tests.sim.world import NO_CALL, LostError, World, packed_value, value_of

from tarn.core.condition import WriteCondition
from tarn.core.entry import etag_of
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId
from tarn.core.listing import Page, PageRequest
from tarn.testing.history import ABSENT, GONE, Op, OpKind, Outcome
from tarn_graveler.assembly import Graveler
from tarn_graveler.committing import CommitRequest, Made
from tarn_graveler.uploads import NewUpload
from tarn_proto.graveler.v1 import branch_service_pb2 as branch_pb
from tarn_proto.graveler.v1 import repository_service_pb2 as repository_pb

__all__ = ["Admin", "Client", "keys_of"]

_SURE = {
    Kind.NOT_FOUND,
    Kind.ALREADY_EXISTS,
    Kind.INVALID,
    Kind.DENIED,
    Kind.CONFLICT,
    Kind.FAILED_PRECONDITION,
    Kind.EXHAUSTED,
    Kind.UNAVAILABLE,
    Kind.UNIMPLEMENTED,
}
"""Kinds that say that nothing was done (`tarn.core.errors`); after any other one nobody knows."""

_SCRATCH = "t/"
_REPOSITORY_SECONDS = 5.5

_NO_BRANCH = {Reason.BRANCH_NOT_FOUND, Reason.REF_NOT_FOUND, Reason.REPOSITORY_NOT_FOUND}


def keys_of(count: int) -> list[str]:
    """The paths of a run, in byte order."""
    return ["a", "b/1", "b/2", "c", "d/e/f", "z"][:count]


def outcome_of(error: Exception) -> Outcome:
    """What an error says about the effect of what was asked."""
    if isinstance(error, TarnError) and error.kind in _SURE:
        return Outcome.FAIL
    return Outcome.INFO


def note_of(error: Exception) -> str:
    """An error in a few words."""
    if isinstance(error, TarnError):
        return f"{error.kind.name} {error.message[:80]}"
    return str(error)


def _observed(error: Exception) -> int | None:
    """What a refused conditional write says was there."""
    if not isinstance(error, TarnError):
        return None
    if error.reason is Reason.ENTRY_NOT_FOUND:
        return ABSENT
    if error.reason is Reason.PRECONDITION_FAILED:
        return int(error.metadata["etag"], 16)
    return None


class Client:
    """Does one thing after another, through any replica that is up.

    Args:
        branches: `repository/branch` labels that it works on.
    """

    def __init__(self, world: World, name: str, branches: list[str]) -> None:
        self.world = world
        self.name = name
        self.history = world.history
        self.random = random.Random(f"client {world.plan.seed} {name}")
        self.branches = branches
        self.keys = keys_of(world.plan.keys)
        self.patience_seconds = world.plan.hang_up_seconds
        self._mine = [1]
        self._seen: dict[tuple[str, str], int] = {}

    async def run(self) -> None:
        """All operations of this client."""
        plan = self.world.plan
        choices = {
            self.put: 6,
            self.delete: plan.delete_weight,
            self.delete_many: 1,
            self.get: 6,
            self.list_page: 3,
            self.commit: plan.commit_weight,
            self.multipart: 1,
            self.scratch: plan.scratch_weight,
            self.put_if: plan.conditional_weight,
        }
        for _ in range(plan.operations):
            (act,) = self.random.choices([*choices], [*choices.values()])
            await act(self.random.choice(self.branches), self.random.choice(self.keys))
            mean = plan.think_seconds
            if self.random.random() < plan.quiet_rate:
                mean = plan.drop_delay_seconds
            await asyncio.sleep(self.random.expovariate(1 / mean))

    async def ask(self, work: Callable[[Graveler], Coroutine[Any, Any, Any]]) -> Any:
        """Has some replica do it."""
        replica = self.world.some_replica(self.random)
        return await replica.ask(work, self.patience_seconds)

    async def put(self, branch: str, key: str) -> None:
        """A new value; sometimes an old one again."""
        value = await self.world.new_value()
        if self.random.random() < 0.05:
            value = self.random.choice(self._mine)
        self._mine.append(value)
        repository_id, branch_id = branch.split("/")
        op = self.history.begin(self.name, OpKind.PUT, branch, key, value)

        async def work(graveler: Graveler) -> None:
            repository = await graveler.repositories.get(repository_id)
            await graveler.staging.stage(repository, BranchId(branch_id), key, packed_value(value))

        await self._finish(op, work)

    async def put_if(self, branch: str, key: str) -> None:
        """A new value, if there is none or if it is the one that was seen; asked for again, as SDKs do,
        while nobody knows what became of it."""
        seen = self._seen.get((branch, key), ABSENT)
        expected = ABSENT if self.random.random() < 0.6 else seen
        value = await self.world.new_value()
        repository_id, branch_id = branch.split("/")
        first: float | None = None
        packed = packed_value(value, f"{self.name}-{value}")
        condition = WriteCondition(if_none_match=True)
        if expected != ABSENT:
            condition = WriteCondition(if_match=etag_of(packed_value(expected)))

        async def work(graveler: Graveler) -> bool:
            repository = await graveler.repositories.get(repository_id)
            return await graveler.conditional.stage(
                repository, BranchId(branch_id), key, packed, condition
            )

        for _ in range(3):
            # Each attempt may still do its work after a later one was answered; but a later one's
            # condition may have been judged by the first.
            op = self.history.begin(self.name, OpKind.PUT, branch, key, value, inv=first)
            op.expected, first = expected, op.inv
            try:
                await self.ask(work)
            except (TarnError, LostError) as error:
                op.observed = _observed(error)
                self.history.finish(op, outcome_of(error), note_of(error))
                if op.outcome is Outcome.FAIL:
                    return
            else:
                self._seen[branch, key] = value
                self.history.finish(op, Outcome.OK)
                return
            await asyncio.sleep(self.random.uniform(0, 1.0))

    async def _finish(self, op: Op, work: Callable[[Graveler], Coroutine[Any, Any, None]]) -> None:
        try:
            await self.ask(work)
        except (TarnError, LostError) as error:
            self.history.finish(op, outcome_of(error), note_of(error))
        else:
            self.history.finish(op, Outcome.OK)

    async def delete(self, branch: str, key: str) -> None:
        """One key."""
        await self._delete(branch, [key])

    async def scratch(self, branch: str, key: str) -> None:
        """A key of its own that comes and goes, as temporary files do: nobody hides what is lost."""
        own = f"{_SCRATCH}{self.name}"
        await self.put(branch, own)
        await asyncio.sleep(self.random.expovariate(1 / self.world.plan.think_seconds))
        await self.delete(branch, own)
        if self.random.random() < 0.3:
            await self.get(branch, own)

    async def delete_many(self, branch: str, key: str) -> None:
        """Several keys in one request."""
        await self._delete(branch, self.random.sample(self.keys, (len(self.keys) + 1) // 2))

    async def _delete(self, branch: str, keys: list[str]) -> None:
        repository_id, branch_id = branch.split("/")
        ops = [self.history.begin(self.name, OpKind.DELETE, branch, k, ABSENT) for k in keys]

        async def work(graveler: Graveler) -> list[TarnError | None]:
            repository = await graveler.repositories.get(repository_id)
            return await graveler.staging.unstage(repository, BranchId(branch_id), keys)

        try:
            outcomes = await self.ask(work)
        except (TarnError, LostError) as error:
            outcomes = [error for _ in keys]
        for op, outcome in zip(ops, outcomes, strict=True):
            if outcome is None:
                self.history.finish(op, Outcome.OK)
            else:
                self.history.finish(op, outcome_of(outcome), note_of(outcome))

    async def get(self, branch: str, key: str) -> Op:
        """One key."""
        repository_id, branch_id = branch.split("/")
        op = self.history.begin(self.name, OpKind.GET, branch, key)

        async def work(graveler: Graveler) -> bytes:
            repository = await graveler.repositories.get(repository_id)
            return await graveler.reading.lookup(repository, branch_id, key)

        try:
            op.value = value_of(await self.ask(work))
            self._seen[branch, key] = op.value
        except (TarnError, LostError) as error:
            self._finish_read(op, error)
        else:
            self.history.finish(op, Outcome.OK)
        return op

    def _finish_read(self, op: Op, error: Exception) -> None:
        """Nothing there, no branch, or no answer."""
        if isinstance(error, TarnError) and error.reason is Reason.ENTRY_NOT_FOUND:
            op.value = ABSENT
        elif isinstance(error, TarnError) and error.reason in _NO_BRANCH:
            op.value = GONE
        elif (
            isinstance(error, TarnError)
            and error.reason is Reason.COMMIT_NOT_FOUND
            and op.branch.startswith("tmp/")
        ):
            op.value = GONE  # slower than D, and the repository was removed meanwhile
        else:
            if isinstance(error, TarnError) and error.kind in {Kind.NOT_FOUND, Kind.CORRUPT}:
                self.world.problem(f"{op.line()}: {error!r}")
            self.history.finish(op, Outcome.INFO, note_of(error))
            return
        self.history.finish(op, Outcome.OK)

    async def list_page(self, branch: str, key: str) -> list[Op]:
        """One page, from the beginning or after a key; each key that it covers is a read."""
        after = self.random.choice(["", key])
        return await self.list_keys(branch, after, self.random.choice([1, 2, 1000]))

    async def list_keys(self, branch: str, after: str, limit: int) -> list[Op]:
        """One page as a read of each key that it covers, listed or not."""
        repository_id, branch_id = branch.split("/")
        scratches = [f"{_SCRATCH}c{n}" for n in range(self.world.plan.clients)]
        covered = sorted(k for k in [*self.keys, *scratches] if k > after)
        ops = [self.history.begin(self.name, OpKind.LIST, branch, k) for k in covered]

        async def work(graveler: Graveler) -> Page:
            repository = await graveler.repositories.get(repository_id)
            request = PageRequest(after=after, limit=limit)
            return await graveler.reading.page(repository, branch_id, request)

        try:
            page: Page = await self.ask(work)
        except (TarnError, LostError) as error:
            for op in ops:
                self._finish_read(op, error)
            return ops
        values = map(value_of, page.entries)
        what = f"a page of {branch} after {after!r}"
        lines = self.history.lines(what, zip(page.paths, values, strict=True))
        for op in ops:
            assert op.key is not None
            if page.next_after is not None and op.key > page.next_after:
                self.history.finish(op, Outcome.INFO, "on a later page")
                continue
            op.value = lines.pop(op.key, ABSENT)
            self.history.finish(op, Outcome.OK)
        if lines:
            self.world.problem(f"a page of {branch} after {after!r} has {sorted(lines)}")
        return ops

    async def commit(self, branch: str, key: str = "") -> Op:
        """Everything that is on the branch."""
        repository_id, branch_id = branch.split("/")
        op = self.history.begin(self.name, OpKind.COMMIT, branch)
        request = CommitRequest("ann", f"#{op.number}", allow_empty=self.random.random() < 0.05)

        async def work(graveler: Graveler) -> Made:
            repository = await graveler.repositories.get(repository_id)
            return await graveler.committing.commit(repository, BranchId(branch_id), request)

        try:
            op.commit_id = (await self.ask(work)).commit_id
        except (TarnError, LostError) as error:
            if isinstance(error, TarnError) and error.reason is Reason.NOTHING_TO_COMMIT:
                op.commit_id, op.is_claim = error.metadata["commit_id"], True
                self.history.finish(op, Outcome.OK)
            else:
                self.history.finish(op, outcome_of(error), note_of(error))
        else:
            self.history.finish(op, Outcome.OK)
        return op

    async def multipart(self, branch: str, key: str) -> None:
        """An upload that is completed, again and again until the answer comes: one write."""
        value = await self.world.new_value()
        repository_id, branch_id = branch.split("/")
        new = NewUpload(BranchId(branch_id), key, b"", "ann", "", is_full_object_checksum=False)

        async def create(graveler: Graveler) -> str:
            repository = await graveler.repositories.get(repository_id)
            return (await graveler.uploads.create(repository, new)).upload_id

        try:
            upload_id: str = await self.ask(create)
        except (TarnError, LostError):
            return

        async def complete(graveler: Graveler) -> None:
            repository = await graveler.repositories.get(repository_id)
            uploads, entry = graveler.uploads, packed_value(value, upload_id)
            claim = await uploads.begin_complete(repository, upload_id, b"manifest")
            if not claim.completed_entry:
                await uploads.finish_complete(repository, upload_id, claim.op_id, entry)

        op = self.history.begin(self.name, OpKind.PUT, branch, key, value)
        is_sure, note = True, ""
        for calls in range(1, 5):
            op.calls = calls
            try:
                await self.ask(complete)
            except (TarnError, LostError) as error:
                is_sure = is_sure and outcome_of(error) is Outcome.FAIL
                note = note_of(error)
            else:
                self.history.finish(op, Outcome.OK, "multipart")
                await self._complete_again(complete)
                return
            await asyncio.sleep(self.random.uniform(0, 10.0))
        self.history.finish(op, Outcome.FAIL if is_sure else Outcome.INFO, f"multipart: {note}")

    async def _complete_again(
        self, complete: Callable[[Graveler], Coroutine[Any, Any, None]]
    ) -> None:
        """What a client does whose answer was lost on its way; it must not write once more."""
        if self.random.random() < 0.5:
            await asyncio.sleep(self.random.uniform(0, 3.0))
            with contextlib.suppress(TarnError, LostError):
                await self.ask(complete)


class Admin(Client):
    """Removes and makes again a branch or a repository while others work on it.

    A label `<repository>/main` stands for the repository, which begins empty; any other one for a
    branch, which begins at the commit of `lake/main`.
    """

    async def run(self) -> None:
        """Turns of one label after the other."""
        while self.world.is_stormy:
            await asyncio.sleep(self.random.expovariate(1 / self.world.plan.drop_delay_seconds))
            for branch in self.branches:
                if self.world.is_stormy:
                    await self.turn(branch)

    async def turn(self, branch: str) -> None:
        """Remove, wait, make again."""
        await self.remove(branch)
        await asyncio.sleep(self.random.expovariate(2.0))
        if branch.endswith("/main"):
            # A replica may know a repository for five seconds longer, and not its namesake until then.
            await asyncio.sleep(_REPOSITORY_SECONDS)
        await self.create(branch)

    async def remove(self, branch: str) -> None:
        """Until it is removed. Attempts whose answer is lost are operations of their own."""
        repository_id, branch_id = branch.split("/")
        was_lost = False
        while True:
            op = self.history.begin(self.name, OpKind.REMOVE, branch)
            op.is_stepwise = branch_id == "main"
            try:
                await self._remove(repository_id, branch_id)
            except (TarnError, LostError) as error:
                outcome = outcome_of(error)
                if isinstance(error, TarnError) and error.reason in _NO_BRANCH:
                    is_ours = Outcome.OK if was_lost else Outcome.FAIL
                    self.history.finish(op, is_ours, "removed before")
                    return
                if isinstance(error, TarnError) and branch_id == "main":
                    outcome = Outcome.INFO  # some steps of several were done
                was_lost = was_lost or outcome is Outcome.INFO
                self.history.finish(op, outcome, note_of(error))
                await asyncio.sleep(0.1)
            else:
                self.history.finish(op, Outcome.OK)
                return

    async def _remove(self, repository_id: str, branch_id: str) -> None:
        replica = self.world.some_replica(self.random)
        if branch_id != "main":
            request = branch_pb.DeleteBranchRequest(
                repository_id=repository_id, branch_id=branch_id
            )
            handler = replica.branch_handler
            await replica.ask(lambda _: handler.DeleteBranch(request, NO_CALL), 10.0)
        else:
            deletion = repository_pb.DeleteRepositoryRequest(repository_id=repository_id)
            repositories = replica.repository_handler
            await replica.ask(lambda _: repositories.DeleteRepository(deletion, NO_CALL), 10.0)

    async def create(self, branch: str) -> None:
        """Until it is there again: a branch at main's commit, or an empty repository."""
        repository_id, branch_id = branch.split("/")
        while True:
            source = "" if branch_id == "main" else await self._main_commit()
            op = self.history.begin(self.name, OpKind.CREATE, branch)
            op.is_stepwise = branch_id == "main"
            op.commit_id = source
            try:
                await self._create(repository_id, branch_id, source)
            except (TarnError, LostError) as error:
                outcome = outcome_of(error)
                exists = isinstance(error, TarnError) and error.kind is Kind.ALREADY_EXISTS
                if (
                    exists
                ):  # an attempt whose answer was lost has made it, of this turn or an older one
                    self.history.finish(op, Outcome.FAIL, "made before")
                    return
                if isinstance(error, TarnError) and branch_id == "main" and not exists:
                    outcome = Outcome.INFO  # some steps of several were done
                self.history.finish(op, outcome, note_of(error))
                await asyncio.sleep(0.1)
            else:
                self.history.finish(op, Outcome.OK)
                return

    async def _main_commit(self) -> str:
        while True:
            try:

                async def work(graveler: Graveler) -> str:
                    repository = await graveler.repositories.get("lake")
                    return await graveler.refs.commit_of(repository, "main")

                commit_id: str = await self.ask(work)
            except (TarnError, LostError):
                await asyncio.sleep(0.1)
            else:
                return commit_id

    async def _create(self, repository_id: str, branch_id: str, source: str) -> None:
        replica = self.world.some_replica(self.random)
        if branch_id != "main":
            request = branch_pb.CreateBranchRequest(
                repository_id=repository_id, branch_id=branch_id, source_ref=source
            )
            handler = replica.branch_handler
            await replica.ask(lambda _: handler.CreateBranch(request, NO_CALL), 10.0)
        else:
            creation = repository_pb.CreateRepositoryRequest(
                repository_id=repository_id, default_branch_id=branch_id
            )
            repositories = replica.repository_handler
            await replica.ask(lambda _: repositories.CreateRepository(creation, NO_CALL), 10.0)

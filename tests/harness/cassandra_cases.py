"""Operations whose writes are lost, and the facts that must hold after every answer to their callers.

In each case a replica that loses a write runs one operation; then a replica that loses none runs others;
then the late request is applied.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import ClassVar

from cassandra_losses import Ending, Replica, ReplicaPair
from lake import entry

from tarn.core.branch import Branch
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.entry import Entry, pack, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, RepositoryId
from tarn.kv.records import Repository
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.records.branches import BranchName
from tarn_graveler.uploads.state import NewUpload

__all__ = ["CASES", "Case"]

NEW = WriteCondition(if_none_match=True)


@dataclass
class Case(ABC):
    """One operation, run by the losing replica of a pair.

    Attributes:
        repository: a repository of this pair only.
        name: unique for each run of the case.
        kept: objects of branches of the repository that must stay readable, by branch and path.
    """

    pair: ReplicaPair
    repository: Repository
    name: str
    kept: dict[tuple[str, str], int] = field(default_factory=dict)

    is_alone: ClassVar[bool] = True
    """Whether no other caller works on the same records meanwhile."""

    @abstractmethod
    async def prepare(self) -> None:
        """Creates the initial state, through the sound replica."""

    @abstractmethod
    async def act(self) -> None:
        """Runs the operation."""

    @abstractmethod
    async def go_on(self, told: Ending) -> None:
        """Compares the caller's outcome with the stored state, lands late requests, and compares again."""

    async def land(self) -> None:
        await self.pair.losses.land()

    def branch(self, branch: str) -> BranchName:
        return BranchName(self.repository, BranchId(branch))

    async def put(self, branch: str, path: str, size: int) -> None:
        """Writes through the sound replica; the write must be acknowledged."""
        staging = self.pair.sound.graveler.staging
        await staging.stage(self.branch(branch), path, entry(size))
        self.kept[branch, path] = size

    async def size(self, branch: str, path: str) -> int | None:
        try:
            reading = self.pair.sound.graveler.reading
            return unpack(await reading.lookup(self.repository, branch, path)).size
        except TarnError as error:
            if error.kind is Kind.NOT_FOUND:
                return None
            raise

    async def record(self, branch: str) -> Branch:
        branches = self.pair.sound.graveler.branches
        return (await branches.fresh(self.branch(branch))).branch

    async def look(self) -> None:
        """Checks that all acknowledged objects exist, and that no record names a token twice."""
        for (branch, path), size in self.kept.items():
            found = await self.size(branch, path)
            assert found == size, f"{branch}/{path} is {found}, not {size}"
            tokens = [token.token_id for token in (await self.record(branch)).tokens]
            assert len(set(tokens)) == len(tokens)


async def refusal(work: Awaitable[object]) -> Reason | None:
    """Returns the reason why a call is refused; None if it succeeds."""
    try:
        await work
    except TarnError as error:
        if error.kind is Kind.UNKNOWN_OUTCOME:
            raise
        return error.reason
    return None


def agrees(told: Ending, is_done: bool) -> bool:
    return told is Ending.UNKNOWN or is_done is (told is Ending.DONE)


class Commit(Case):
    async def prepare(self) -> None:
        await self.pair.sound.create_branch(self.repository.repository_id, self.name)
        await self.put(self.name, "x", 1)

    async def act(self) -> None:
        committing = self.pair.hurt.graveler.committing
        self.made = await committing.commit(self.branch(self.name), CommitRequest("ann", self.name))

    async def messages(self) -> list[str]:
        """Returns the messages of the branch's commits, newest first."""
        commits = self.pair.sound.graveler.commits
        at, found = (await self.record(self.name)).commit_id, []
        while True:
            commit = await commits.get(self.repository, at)
            found.append(commit.message)
            if not commit.parents:
                return found
            at = commit.parents[0]

    async def go_on(self, told: Ending) -> None:
        assert agrees(told, self.name in await self.messages())
        await self.put(self.name, "y", 2)
        if told is Ending.UNKNOWN:  # another commit, while the first request may still be queued
            sound = self.pair.sound.graveler.committing
            await sound.commit(self.branch(self.name), CommitRequest("bob", "again"))
            await self.put(self.name, "z", 3)
        await self.land()
        assert agrees(told, self.name in await self.messages())
        assert (await self.messages()).count(self.name) <= 1
        await self.look()
        last = CommitRequest("bob", "last", allow_empty=True)
        sound = self.pair.sound.graveler.committing
        await sound.commit(self.branch(self.name), last)
        for path, size in (("x", 1), ("y", 2)):
            assert await self.size(f"{self.name}@", path) == size


class Ref(Case):
    """A branch or a tag."""

    async def kinds(self) -> list[str]:
        sound, found = self.pair.sound.graveler, []
        reads: list[tuple[str, Awaitable[object]]] = [
            ("branch", sound.branches.fresh(self.branch(self.name))),
            ("tag", sound.tags.get(self.repository, self.name)),
        ]
        for kind, read in reads:
            try:
                await read
            except TarnError as error:
                if error.kind is not Kind.NOT_FOUND:
                    raise
            else:
                found.append(kind)
        return found

    async def remove(self) -> None:
        for kind in await self.kinds():
            sound = self.pair.sound
            remove = sound.delete_branch if kind == "branch" else sound.delete_tag
            await remove(self.repository.repository_id, self.name)

    async def both_can_be_made(self) -> None:
        """Creates one after the other; they must never exist at the same time."""
        sound, repository = self.pair.sound, self.repository.repository_id
        for make, other, taken in (
            (sound.create_tag, sound.create_branch, Reason.TAG_EXISTS),
            (sound.create_branch, sound.create_tag, Reason.BRANCH_EXISTS),
        ):
            assert await refusal(make(repository, self.name)) is None
            assert await refusal(other(repository, self.name)) is taken
            await self.remove()
        assert await self.kinds() == []


class Creation(Ref):
    kind = ""

    async def prepare(self) -> None:
        assert await self.kinds() == []

    async def act(self) -> None:
        hurt = self.pair.hurt
        make = hurt.create_branch if self.kind == "branch" else hurt.create_tag
        await make(self.repository.repository_id, self.name)

    async def go_on(self, told: Ending) -> None:
        assert agrees(told, await self.kinds() == [self.kind])
        if told is not Ending.DONE:  # another caller takes the name for the other kind
            sound = self.pair.sound
            other = sound.create_tag if self.kind == "branch" else sound.create_branch
            reason = await refusal(other(self.repository.repository_id, self.name))
            assert reason in {None, Reason.BRANCH_EXISTS, Reason.TAG_EXISTS}
        before = await self.kinds()
        assert len(before) == 1
        await self.land()
        assert await self.kinds() == before
        await self.remove()
        await self.both_can_be_made()


class BranchCreation(Creation):
    kind = "branch"


class TwoRefs(Ref):
    """Creates a tag and a branch of one name concurrently."""

    is_alone = False

    async def prepare(self) -> None:
        assert await self.kinds() == []

    async def act(self) -> None:
        repository = self.repository.repository_id
        branch = self.pair.sound.create_branch(repository, self.name)
        second = asyncio.ensure_future(self.pair.told(branch))
        try:
            await self.pair.hurt.create_tag(repository, self.name)
        finally:
            self.second = await second

    async def go_on(self, told: Ending) -> None:
        for _ in range(2):
            kinds = await self.kinds()
            assert len(kinds) <= 1
            assert agrees(told, kinds == ["tag"])
            assert agrees(self.second, kinds == ["branch"])
            await self.land()
        await self.remove()
        await self.both_can_be_made()


class TagRemoval(Ref):
    async def prepare(self) -> None:
        await self.pair.sound.create_tag(self.repository.repository_id, self.name)

    async def act(self) -> None:
        await self.pair.hurt.delete_tag(self.repository.repository_id, self.name)

    async def go_on(self, told: Ending) -> None:
        assert agrees(told, await self.kinds() == [])
        await self.remove()
        await self.pair.sound.create_tag(self.repository.repository_id, self.name)
        await self.land()
        assert await self.kinds() == ["tag"], "the name was created again"
        await self.remove()
        await self.both_can_be_made()


class BranchRemoval(Ref):
    async def prepare(self) -> None:
        await self.pair.sound.create_branch(self.repository.repository_id, self.name)
        await self.put(self.name, "old", 1)
        self.kept.clear()

    async def act(self) -> None:
        await self.pair.hurt.delete_branch(self.repository.repository_id, self.name)

    async def go_on(self, told: Ending) -> None:
        assert agrees(told, await self.kinds() == [])
        if await self.kinds():
            assert await self.size(self.name, "old") == 1
        await self.remove()
        await self.pair.sound.create_branch(self.repository.repository_id, self.name)
        await self.put(self.name, "new", 2)
        await self.land()
        await self.look()
        assert await self.size(self.name, "old") is None


class RepositoryCase(Case):
    @property
    def namespace(self) -> str:
        return f"local://{self.name}"

    async def is_served(self) -> bool:
        """Whether a replica without a cached record finds the repository."""
        try:
            found = await self.pair.sound.graveler.repositories.read(RepositoryId(self.name))
        except TarnError as error:
            if error.reason is not Reason.REPOSITORY_NOT_FOUND:
                raise
            return False
        return found.is_served

    async def use(self) -> None:
        """Checks that the repository of that name works."""
        sound = self.pair.sound.graveler
        sound.repositories.forget(self.name)
        self.repository = await sound.repositories.read(RepositoryId(self.name))
        await self.put("main", "x", 1)


class RepositoryCreation(RepositoryCase):
    async def prepare(self) -> None:
        assert not await self.is_served()

    async def act(self) -> None:
        await self.pair.hurt.create_repository(self.name, self.namespace)

    async def go_on(self, told: Ending) -> None:
        assert agrees(told, await self.is_served())
        reason = await refusal(self.pair.sound.create_repository(self.name, self.namespace))
        if told is Ending.DONE:
            assert reason is Reason.REPOSITORY_EXISTS
        elif told is Ending.REFUSED:
            assert reason is None, "neither name nor namespace is used up"
        await self.use()
        await self.land()
        await self.look()
        other = self.pair.sound.create_repository(f"{self.name}-other", self.namespace)
        assert await refusal(other) is Reason.REPOSITORY_EXISTS, "one namespace, one repository"


class RepositoryRemoval(RepositoryCase):
    async def prepare(self) -> None:
        await self.pair.sound.create_repository(self.name, self.namespace)

    async def act(self) -> None:
        await self.pair.hurt.delete_repository(self.name)

    async def go_on(self, told: Ending) -> None:
        assert agrees(told, not await self.is_served())
        sound = self.pair.sound
        assert await refusal(sound.delete_repository(self.name)) in {
            None,
            Reason.REPOSITORY_NOT_FOUND,
        }
        assert not await self.is_served()
        again = sound.create_repository(self.name, self.namespace)
        assert await refusal(again) is Reason.REPOSITORY_EXISTS, "its blocks are still there"
        assert await refusal(sound.create_repository(self.name, f"{self.namespace}-2")) is None
        await self.use()
        await self.land()
        await self.look()


class Upload(Case):
    """A completion that is repeated under its claim; then another client writes the key."""

    condition = UNCONDITIONAL

    async def prepare(self) -> None:
        await self.pair.sound.create_branch(self.repository.repository_id, self.name)
        uploads = self.pair.sound.graveler.uploads
        new = NewUpload(
            BranchId(self.name), "k", entry(0), "ann", "", is_full_object_checksum=False
        )
        self.upload_id = (await uploads.create(self.repository, new)).upload_id
        begun = await uploads.begin_complete(self.repository, self.upload_id, bytes(32))
        self.claim = begun.op_id

    async def finish(self, replica: Replica) -> None:
        uploads = replica.graveler.uploads
        packed = entry(1, self.upload_id)
        await uploads.finish_complete(
            self.repository, self.upload_id, self.claim, packed, self.condition
        )

    async def act(self) -> None:
        if self.is_alone:
            await self.finish(self.pair.hurt)
            return
        second = asyncio.ensure_future(self.pair.told(self.finish(self.pair.sound)))
        try:
            await self.finish(self.pair.hurt)
        finally:
            self.second = await second

    async def go_on(self, told: Ending) -> None:
        found = await self.size(self.name, "k")
        assert told is not Ending.DONE or found == 1
        if found is not None:  # a repeated completion runs after this
            await self.put(self.name, "k", 2)
        again = await self.pair.told(self.finish(self.pair.sound))
        assert again is not Ending.REFUSED or self.condition
        await self.look()
        if found is None:
            assert again is not Ending.DONE or await self.size(self.name, "k") == 1
            await self.put(self.name, "k", 2)
        await self.land()
        await self.look()
        repeated = await self.pair.told(self.finish(self.pair.sound))
        assert repeated is Ending.DONE or again is not Ending.DONE
        await self.look()
        committing = self.pair.sound.graveler.committing
        await committing.commit(self.branch(self.name), CommitRequest("ann", ""))
        await self.look()


class TwoCompletions(Upload):
    """Two gateways complete the upload concurrently, under one claim."""

    is_alone = False


class ConditionalUpload(Upload):
    condition = NEW


class ConditionalPut(Case):
    """Two writers each create the key if it does not exist."""

    async def prepare(self) -> None:
        await self.pair.sound.create_branch(self.repository.repository_id, self.name)

    async def write(self, replica: Replica, size: int) -> None:
        conditional = replica.graveler.conditional
        packed = pack(Entry(size, 0, bytes(16), bytes([size] * 16), operation_id=f"op{size}"))
        await conditional.stage(self.branch(self.name), "k", packed, NEW)

    async def act(self) -> None:
        await self.write(self.pair.hurt, 1)

    async def go_on(self, told: Ending) -> None:
        second = await self.pair.told(self.write(self.pair.sound, 2))
        found = await self.size(self.name, "k")
        if told is Ending.DONE:
            assert (second, found) == (Ending.REFUSED, 1)
        elif second is Ending.DONE:
            assert found == 2
        else:
            assert (told, second, found) == (Ending.UNKNOWN, Ending.REFUSED, 1)
        assert found is not None
        self.kept[self.name, "k"] = found
        await self.land()
        await self.look()
        committing = self.pair.sound.graveler.committing
        await committing.commit(self.branch(self.name), CommitRequest("ann", ""))
        await self.look()


class Overwrite(Case):
    """An acknowledged write and deletion are not undone by a late row of their own."""

    async def prepare(self) -> None:
        await self.pair.sound.create_branch(self.repository.repository_id, self.name)
        await self.put(self.name, "gone", 1)
        await self.put(self.name, "k", 1)

    async def act(self) -> None:
        staging = self.pair.hurt.graveler.staging
        branch = BranchId(self.name)
        await staging.stage(self.branch(branch), "k", entry(2))
        (error,) = await staging.unstage(self.branch(branch), ["gone"])
        if error is not None:
            raise error

    async def go_on(self, told: Ending) -> None:
        if told is Ending.DONE:
            assert await self.size(self.name, "k") == 2
            assert await self.size(self.name, "gone") is None
            await self.put(self.name, "k", 3)
            await self.put(self.name, "gone", 3)
        else:
            self.kept.clear()
        await self.land()
        await self.look()


CASES = [
    Commit,
    BranchCreation,
    TwoRefs,
    BranchRemoval,
    TagRemoval,
    RepositoryCreation,
    RepositoryRemoval,
    Upload,
    TwoCompletions,
    ConditionalUpload,
    ConditionalPut,
    Overwrite,
]

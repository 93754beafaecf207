"""The clients: the operations that they perform, and the record of their answers."""

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import replace

from tests.sim.least import DIFFERENCE
from tests.sim.objects import Objects
from tests.sim.outcomes import note_of, outcome_of, refuse
from tests.sim.transport import SimTransport
from tests.sim.uploading import Uploading
from tests.sim.versioning import Versioning
from tests.sim.world import World
from tests.support.check.history import ABSENT, GONE, Op, OpKind, Outcome

from tarn.client.graveler import GravelerClient, ListingPage
from tarn.core.condition import WriteCondition
from tarn.core.entry import identity_of
from tarn.core.errors import Kind, Reason, TarnError
from tarn.objects.repository_cache import RepositoryCache
from tarn.rpc.wire.call import Call

__all__ = ["NO_BRANCH", "Client", "observed"]

_SCRATCH = "t/"
_LATER = "on a later page"
_PAGES_MAX = 50

NO_BRANCH = {Reason.BRANCH_NOT_FOUND, Reason.REF_NOT_FOUND, Reason.REPOSITORY_NOT_FOUND}


def observed(world: World, error: TarnError) -> int | None:
    """Returns the value that a refused conditional write or delete reports."""
    if error.reason is Reason.ENTRY_NOT_FOUND:
        return ABSENT
    if error.reason is Reason.PRECONDITION_FAILED:
        return world.values.by_etag(error.metadata["etag"])
    return None


class Client:
    """Performs one operation after another, through any replica that is up.

    Args:
        branches: labels `repository/branch` of the branches that it works on.
    """

    def __init__(self, world: World, name: str, branches: list[str]) -> None:
        self.world = world
        self.name = name
        self.history = world.history
        seed = world.plan.seed
        self.random = random.Random(f"client {seed} {name}")
        self.transport = SimTransport(world, random.Random(f"transport {seed} {name}"))
        self.graveler = GravelerClient(self.transport)
        self.repositories = RepositoryCache(self.graveler, self.transport.clock)
        self.branches = branches
        self.keys = list(world.keys)
        self.patience_seconds = world.plan.hang_up_seconds
        self._objects = Objects(self)
        self._seen: dict[tuple[str, str], int] = {}
        self._paging = random.Random(f"pages {seed} {name}")  # so that other runs stay as they are
        self._tag = _Tag(f"{name}-1")
        self._uploading = Uploading(self)
        self._versioning = Versioning(self)

    async def run(self) -> None:
        """Performs all operations of this client."""
        plan = self.world.plan
        acts, weights = [*plan.weights], [*plan.weights.values()]
        for _ in range(plan.operations):
            await self.world.serving()
            (name,) = self.random.choices(acts, weights)
            await getattr(self, name)(
                self.random.choice(self.branches), self.random.choice(self.keys)
            )
            mean = plan.think_seconds
            if self.random.random() < plan.quiet_rate:
                mean = plan.drop_delay_seconds
            await asyncio.sleep(self.random.expovariate(1 / mean))

    def call(self) -> Call:
        """Returns a call that waits as long as this client does."""
        return self.transport.call(self.patience_seconds)

    def saw(self, branch: str, key: str) -> int:
        """Returns the value that this client has last seen."""
        return self._seen.get((branch, key), ABSENT)

    async def put(self, branch: str, key: str) -> None:
        """Writes a new value, or sometimes an old one again."""
        value = await self._objects.new(branch, key)
        if value is None:
            return
        op = self.history.begin(self.name, OpKind.PUT, branch, key, value)
        await self._finish(op, self._stage(branch, key, self.world.values.packed(value)))
        await self._objects.ended(op)

    async def _stage(
        self, branch: str, key: str, packed: bytes, condition: WriteCondition | None = None
    ) -> bool:
        """Stages an entry; returns whether the path has that of an earlier request of the operation instead."""
        repository_id, branch_id = branch.split("/")
        instance_uid = await self._objects.home_of(repository_id, packed)
        place = (repository_id, instance_uid, branch_id, key, packed)
        token, is_new = self._objects.proof_of(packed)
        return await self.graveler.stage(
            replace(self.call(), service_token=token),
            *place,
            condition or WriteCondition(),
            is_new_address=is_new,
        )

    async def put_if(self, branch: str, key: str) -> None:
        """Writes a new value if the key has none, or the one that the client saw. Repeats the request, as SDKs do,
        while its outcome is unknown."""
        if looks := self.random.random() < 0.5:  # as in a read-modify-write
            await self.get(branch, key)
        expected = self._seen.get((branch, key), ABSENT)
        if not looks and self.random.random() < 0.6:
            expected = ABSENT
        value = await self._objects.new(branch, key, conditional=True)
        if value is None:
            return
        begun, operation_id = value, f"{self.name}-{value}"
        first: float | None = None
        condition = WriteCondition(if_none_match=True)
        if expected != ABSENT:
            condition = WriteCondition(if_match=self.world.values.etag(expected))
        for _ in range(3):
            # Each attempt may take effect even after a later one was answered. A later attempt's condition may
            # have been evaluated by the first, so it begins with the first.
            op = self.history.begin(self.name, OpKind.PUT, branch, key, value, inv=first)
            op.expected, first = expected, op.inv
            packed = self.world.values.packed(value, operation_id, self._now_us())
            try:
                is_repeat = await self._stage(branch, key, packed, condition)
            except TarnError as error:
                op.observed = observed(self.world, error)
                self._refuse(op, error)
                if op.outcome is Outcome.FAIL:
                    return
            else:
                self._seen[branch, key] = value
                self.history.finish(op, Outcome.OK)
                if is_repeat and value != begun:
                    self.world.statistics["conditional writes that had taken effect"] += 1
                    await self._objects.remove(value)
                return
            await asyncio.sleep(self.random.uniform(0, 1.0))
            value = await self._objects.again(branch, value)
            if value is None:
                return

    def _now_us(self) -> int:
        """Returns the modification time that a gateway gives to an entry; 0 if no operation of the plan compares it."""
        gateways = self.world.gateways
        clock = gateways[len(self.history.ops) % len(gateways)].clock
        return clock.now_us() if self.world.plan.has_moves else 0

    def _refuse(self, op: Op, error: TarnError) -> None:
        """Records that a put was refused."""
        assert op.value is not None, "a put has a value"
        op.grounds = self._objects.grounds(op.value)
        refuse(self.history, op, error)

    async def _finish(self, op: Op, work: Awaitable[object]) -> None:
        try:
            await work
        except TarnError as error:
            self._refuse(op, error)
        else:
            self.history.finish(op, Outcome.OK)

    async def delete(self, branch: str, key: str) -> None:
        """Deletes one key."""
        await self._delete(branch, [key])

    async def scratch(self, branch: str, key: str) -> None:
        """Writes and deletes a key of this client only, as temporary files do: no other write can hide a lost one."""
        own = f"{_SCRATCH}{self.name}"
        await self.put(branch, own)
        await asyncio.sleep(self.random.expovariate(1 / self.world.plan.think_seconds))
        await self.delete(branch, own)
        if self.random.random() < 0.3:
            await self.get(branch, own)

    async def delete_many(self, branch: str, key: str) -> None:
        """Deletes several keys in one request."""
        await self._delete(branch, self.random.sample(self.keys, (len(self.keys) + 1) // 2))

    async def _delete(self, branch: str, keys: list[str]) -> None:
        repository_id, branch_id = branch.split("/")
        ops = [self.history.begin(self.name, OpKind.DELETE, branch, k, ABSENT) for k in keys]
        outcomes: list[TarnError | None] = [None]
        try:
            if len(keys) == 1:
                await self.graveler.unstage(self.call(), repository_id, branch_id, keys[0])
            else:
                outcomes = await self.graveler.unstage_many(
                    self.call(), repository_id, branch_id, keys
                )
        except TarnError as error:
            outcomes = [error for _ in keys]
        for op, outcome in zip(ops, outcomes, strict=True):
            if outcome is None:
                self.history.finish(op, Outcome.OK)
            else:
                refuse(self.history, op, outcome)

    async def get(self, branch: str, key: str) -> Op:
        """Reads one key."""
        repository_id, branch_id = branch.split("/")
        op = self.history.begin(self.name, OpKind.GET, branch, key)
        begun = self.world.loop.time()
        try:
            found = await self.graveler.lookup(self.call(), repository_id, branch_id, key)
        except TarnError as error:
            self._finish_read(op, error, begun)
        else:
            op.value = self.world.values.of(found.entry)
            self.history.finish(op, Outcome.OK)
            self._objects.looked_up(op, begun)
        if op.is_ok:
            self._seen[branch, key] = max(op.value or ABSENT, ABSENT)
        return op

    def _finish_read(self, op: Op, error: TarnError, begun: float) -> None:
        """Records a read without a value: no entry, no branch, or no answer."""
        if error.reason is Reason.ENTRY_NOT_FOUND:
            op.value = ABSENT
        elif error.reason in NO_BRANCH:
            op.value = GONE
        elif error.reason is Reason.COMMIT_NOT_FOUND and op.branch.startswith("tmp/"):
            op.value = GONE  # the read took longer than the drop delay, and the repository was removed meanwhile
        else:
            is_lost = error.kind in {Kind.NOT_FOUND, Kind.CORRUPT}
            if is_lost and not self._objects.may_be_swept(error, begun):
                self.world.problem(f"{op.line()}: {error!r}")
            if is_lost:
                self.history.finish(op, Outcome.INFO, note_of(error))
            else:
                refuse(self.history, op, error)
            return
        self.history.finish(op, Outcome.OK)

    async def list_page(self, branch: str, key: str) -> list[Op]:
        """Reads one page; each key that it covers is a read."""
        after = self.random.choice(["", key])
        limit = self.random.choice([1, 2, 1000])
        if self.random.random() < 0.6:
            return await self.list_keys(branch, after, limit)
        prefix = key[: self.random.randrange(len(key) + 1)]
        delimiter = self.random.choice(["", "/", "/", key[-1]])
        return await self.list_keys(branch, after, limit, prefix, delimiter)

    async def list_keys(
        self,
        branch: str,
        after: str,
        limit: int,
        prefix: str = "",
        delimiter: str = "",
        *,
        is_whole: bool = False,
    ) -> list[Op]:
        """Reads one page, sometimes (or if `is_whole`) also those that follow it; returns a read of each key that they
        cover.
        """
        asked = {"prefix": prefix, "delimiter": delimiter, "after": after}
        lives = sorted({"", self.world.life})
        scratches = [
            f"{_SCRATCH}{life}c{n}" for life in lives for n in range(self.world.plan.clients)
        ]
        matching = [k for k in [*self.keys, *scratches] if k.startswith(prefix)]
        left = sorted(k for k in matching if k > after != _line(k, prefix, delimiter))
        ops, token = await self._page(branch, left, limit, asked)
        is_paged = bool(token) and (is_whole or self._paging.random() < self.world.plan.paged_rate)
        for _ in range(_PAGES_MAX if is_paged else 0):
            # The key on which a page ends is read once; those behind it are read by the pages that follow.
            left = [str(op.key) for op in ops if op.note == _LATER]
            ops = [op for op in ops if op.note != _LATER]
            more, token = await self._page(branch, left, limit, {**asked, "page_token": token})
            self.world.statistics["pages that follow another one"] += 1
            ops += more
            if not token:
                break
        return ops

    async def _page(
        self, branch: str, keys: list[str], limit: int, asked: dict[str, str]
    ) -> tuple[list[Op], str]:
        """Reads one page; returns a read of each key that may be on it, and the token of the next page.

        A common prefix says that one of the keys below it is there; if the prefix is missing, all its keys are absent.
        """
        repository_id, branch_id = branch.split("/")
        ops = [self.history.begin(self.name, OpKind.LIST, branch, k) for k in keys]
        begun = self.world.loop.time()
        try:
            page = await self.graveler.list_entries(
                self.call(), repository_id, branch_id, page_size=limit, **asked
            )
        except TarnError as error:
            for op in ops:
                self._finish_read(op, error, begun)
            return ops, ""
        self._read_page(page, ops, asked["prefix"], asked["delimiter"], f"{branch} {asked}")
        for op in ops:
            self._objects.looked_up(op, begun)
        return ops, page.next_page_token

    def _read_page(
        self, page: ListingPage, ops: list[Op], prefix: str, delimiter: str, what: str
    ) -> None:
        if page.paths != sorted(set(page.paths)):
            self.world.problem(
                f"a page of {what} is not in order, or has a line twice: {page.paths}"
            )
        lines = dict(zip(page.paths, page.entries, strict=True))
        unknown, rolled = set(lines), dict[str, list[Op]]()
        last = page.paths[-1] if page.paths else ""
        for op in ops:
            assert op.key is not None, "a line of a page has a key"
            line = _line(op.key, prefix, delimiter)
            unknown.discard(line)
            packed = lines.get(line)
            if page.next_page_token and line > last:
                self.history.finish(op, Outcome.INFO, _LATER)
            elif packed == b"":
                rolled.setdefault(line, []).append(op)
                self.history.finish(op, Outcome.INFO, "rolled up")
            else:
                op.value = ABSENT if packed is None else self.world.values.of(packed)
                self.history.finish(op, Outcome.OK)
        for below in rolled.values():
            below[0].below = tuple(str(op.key) for op in below)
        if unknown:
            self.world.problem(f"a page of {what} has {sorted(unknown)}")

    async def difference(self, branch: str, key: str) -> list[Op]:
        """Reads uncommitted differences: each line is a read of its key; a missing one says that it is unchanged."""
        repository_id, branch_id = branch.split("/")
        ops = {k: self.history.begin(self.name, OpKind.LIST, branch, k) for k in self.keys}
        begun = self.world.loop.time()
        try:
            page = await self.graveler.diff_uncommitted(self.call(), repository_id, branch_id)
        except TarnError as error:
            for op in ops.values():
                self._finish_read(op, error, begun)
            return [*ops.values()]
        sides = zip(page.left_entries, page.right_entries, strict=True)
        changes = dict(zip(page.paths, sides, strict=True))
        for path, (left, right) in changes.items():
            if left and right and identity_of(left) == identity_of(right):
                self.world.problem(f"{path} of {branch} is a difference of nothing")
        for path, op in ops.items():
            if path in changes:
                right = changes[path][1]
                op.value = self.world.values.of(right) if right else ABSENT
                self.history.finish(op, Outcome.OK, DIFFERENCE)
            elif page.next_page_token and path > max(changes, default=""):
                self.history.finish(op, Outcome.INFO, _LATER)
            else:
                op.is_unchanged = True
                self.history.finish(op, Outcome.OK, DIFFERENCE)
        return [*ops.values()]

    async def tag(self, branch: str, key: str) -> None:
        """Creates a tag at a branch's commit, reads through it, and deletes it."""
        tag, lake = self._tag, "lake"
        try:
            if not tag.commit_id:
                source = await self.graveler.get_branch(self.call(), lake, "main")
                tag.commit_id = source.commit_id
                await self.graveler.create_tag(self.call(), lake, tag.name, tag.commit_id)
            elif self.random.random() < 0.3:
                await self.graveler.delete_tag(self.call(), lake, tag.name)
                tag.commit_id = ""
        except TarnError as error:
            # The tag may exist or not, and a later answer may be that of this request, so use a new name.
            if outcome_of(error) is not Outcome.FAIL:
                self._tag = _Tag(f"{self.name}-{int(tag.name.split('-')[1]) + 1}")
            elif error.kind is Kind.UNAVAILABLE or error.reason is Reason.EXPIRED_COMMIT:
                tag.commit_id = tag.commit_id if tag.is_made else ""
            else:
                self.world.problem(f"tag {tag.name}: {error!r}")
            return
        tag.is_made = bool(tag.commit_id)
        await self._read_tag(tag, key)

    async def _read_tag(self, tag: "_Tag", key: str) -> None:
        try:
            found = await self.graveler.lookup(self.call(), "lake", tag.name, key)
        except TarnError as error:
            if error.reason is Reason.ENTRY_NOT_FOUND and tag.commit_id:
                self.world.commit_reads.append((tag.name, tag.commit_id, key, ABSENT))
            elif error.kind is Kind.NOT_FOUND and tag.commit_id:
                self.world.problem(f"tag {tag.name} was made and is not there: {error!r}")
        else:
            value = self.world.values.of(found.entry)
            self.world.commit_reads.append((tag.name, tag.commit_id, key, value))

    async def commit(self, branch: str, key: str = "") -> Op:
        """Commits all changes of the branch."""
        repository_id, branch_id = branch.split("/")
        op = self.history.begin(self.name, OpKind.COMMIT, branch)
        op.allows_empty = self.random.random() < 0.05
        try:
            made = await self.graveler.create_commit(
                self.call(), repository_id, branch_id, f"#{op.number}", allow_empty=op.allows_empty
            )
        except TarnError as error:
            if error.reason is Reason.NOTHING_TO_COMMIT:
                op.commit_id, op.is_claim = error.metadata["commit_id"], True
                self.history.finish(op, Outcome.OK)
            else:
                refuse(self.history, op, error)
        else:
            op.commit_id = made.commit.commit_id
            self.history.finish(op, Outcome.OK)
            self.world.kept.acknowledged(op.commit_id)
        return op

    async def merge(self, branch: str, key: str) -> None:
        """Merges another branch."""
        await self._versioning.merge(branch)

    async def pick(self, branch: str, key: str) -> None:
        """Reverts or cherry-picks a commit."""
        await self._versioning.pick(branch)

    async def reset(self, branch: str, key: str) -> None:
        """Discards all uncommitted changes."""
        await self._versioning.reset(branch)

    async def part(self, branch: str, key: str) -> None:
        """Discards the uncommitted changes of some keys."""
        await self._versioning.part(branch, key)

    async def move(self, branch: str, key: str) -> None:
        """Moves a branch to another commit."""
        await self._versioning.move(branch)

    async def multipart(self, branch: str, key: str) -> None:
        """Plays an upload: it is one write, or none."""
        await self._uploading.upload(branch, key)


class _Tag:
    """A tag of one client.

    Attributes:
        commit_id: the commit that it names; empty if it does not exist.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.commit_id = ""
        self.is_made = False


def _line(key: str, prefix: str, delimiter: str) -> str:
    """Returns the line of a page that a key belongs to."""
    at = key.find(delimiter, len(prefix)) if delimiter else -1
    return key if at < 0 else key[: at + len(delimiter)]

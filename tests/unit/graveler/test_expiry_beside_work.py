"""Random interleavings of commits that expire with what brings old commits back (rule 14, docs/design/retention.md).

The plan, the rows and the roots are those of production. The rules keep the head of each branch, and the reflog ends
whenever a plan is made. At the end, the commit of every branch and tag must have all of its objects, and so must every
acknowledged commit that has not expired.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from beside_work import World, play

from tarn.collection.expiring import read_history
from tarn.collection.progress import CollectionProgress
from tarn.core.errors import Reason, TarnError
from tarn.core.expiry import Expiry
from tarn.core.expiry_plan import plan_expiry
from tarn.core.ids import BranchId, CommitId, TagId, physical_path
from tarn.core.retention import BranchRule, Retention
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.records import decode_branch, decode_tag
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.records.branches import BranchName
from tarn_graveler.versioning.merges import MergeRequest, PickRequest

TURNS = 40
RULES = Retention((BranchRule("*"),))


class ExpiringWorld(World):
    """A world whose commits expire."""

    def __init__(self, *args: Any, **parts: Any) -> None:
        super().__init__(*args, **parts)
        self.commits: list[CommitId] = []
        self.expired = 0
        self.brought_back = 0
        self.refused = 0
        self.names = 0

    def works(self) -> list[Callable[[], Awaitable[None]]]:
        """Twice as many commits, and each way to bring an old one back."""
        back = (self.create, self.tag, self.move, self.revert, self.cherry_pick, self.merge)
        return [*super().works(), *(self.put, self.commit) * 2, *map(self.counted, back)]

    def counted(self, work: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def counted() -> None:
            if not self.commits:
                return
            try:
                await work()
            except TarnError as error:
                self.refused += error.reason is Reason.EXPIRED_COMMIT
                raise
            self.brought_back += 1

        return counted

    async def commit(self) -> None:
        made = await self.graveler.committing.commit(self.branch(), CommitRequest("ann", ""))
        self.commits.append(made.commit_id)

    def old_commit(self) -> CommitId:
        """Returns one of the last commits; some expire at this moment, or have expired."""
        return self.rng.choice(self.commits[-12:])

    def name(self) -> str:
        self.names += 1
        return f"b{self.names}"

    async def create(self) -> None:
        name = BranchName(self.repository, BranchId(self.name()))
        await self.graveler.branches.create(name, self.old_commit())
        await self.clock.sleep(self.rng.choice((30, 300)))
        if self.rng.random() < 0.6:
            await self.graveler.branches.delete(name, never)

    async def tag(self) -> None:
        tag_id = TagId(self.name())
        await self.graveler.tags.create(self.repository, tag_id, self.old_commit())
        await self.clock.sleep(self.rng.choice((30, 300)))
        if self.rng.random() < 0.6:
            await self.graveler.tags.delete(self.repository, tag_id)

    async def move(self) -> None:
        name, commit_id = self.branch(), self.old_commit()
        head = (await self.graveler.branches.fresh(name)).branch.commit_id
        new = NewHead(commit_id, await self.graveler.commits.get(self.repository, commit_id))
        await self.graveler.moves.move_to(name, new, head, force=True)

    async def revert(self) -> None:
        await self.graveler.merges.revert(
            self.branch(), PickRequest(self.old_commit(), "ann", "undo")
        )

    async def cherry_pick(self) -> None:
        await self.graveler.merges.cherry_pick(
            self.branch(), PickRequest(self.old_commit(), "ann", "again")
        )

    async def merge(self) -> None:
        await self.graveler.merges.merge(
            self.branch(), MergeRequest(self.old_commit(), "ann", "merge")
        )

    # ---- the collector

    async def history_pages(self) -> Any:
        cursor = ""
        while True:
            page, cursor = await self.graveler.history_pages.page(self.repository, cursor, 7)
            yield page
            if not cursor:
                return

    async def expire(self) -> None:
        """As `tarn.collection.expiring.expire` does, without a run."""
        keys = self.graveler.repositories.keys_of(self.repository)
        await self.kv.drop_partition(keys.reflog)
        history, _ = await read_history(self, CollectionProgress(), RULES)
        expiry = Expiry("a rule", self.clock.now_us())
        planned = plan_expiry(history, RULES, self.clock.now_us())
        rows = [(commit_id, expiry) for commit_id in planned]
        self.expired += await self.graveler.expired.expire(self.repository, rows)

    # ---- the checks

    async def check(self) -> None:
        keys = self.graveler.repositories.keys_of(self.repository)
        prefix = RepositoryKeys.branch("")
        rows = await self.kv.scan(keys.refs, prefix, after_prefix(prefix), 1000)
        needed = {decode_branch(row).commit_id: key.decode() for key, row in rows}
        prefix = RepositoryKeys.tag("")
        rows = await self.kv.scan(keys.refs, prefix, after_prefix(prefix), 1000)
        needed |= {decode_tag(row).commit_id: key.decode() for key, row in rows}
        expired = await self.graveler.expired.find(self.repository, self.commits)
        needed |= {each: "not expired" for each in self.commits if each not in expired}
        for commit_id, who in needed.items():
            commit = await self.graveler.commits.get(self.repository, commit_id)
            addresses, _ = await self.closure(commit.metarange_id)
            for address in addresses - self.doubtful - {b""}:
                await self.look(physical_path(address), f"{who} at {commit_id[:8]}")


async def never(*_: object) -> None:
    """Announces no tokens."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_no_object_goes_of_a_commit_that_has_not_expired(seed: int, tmp_path: Path) -> None:
    world = await play(seed, tmp_path, TURNS, ExpiringWorld)
    assert world.problems == []
    assert min(world.expired, world.brought_back, world.deleted) > 0

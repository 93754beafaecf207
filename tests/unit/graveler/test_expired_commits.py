"""Commits that a retention rule has let go: what they refuse, and every interleaving with what brings them back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from expired_lake import RULE, commit, expire, listing_of, roots
from lake import MAIN, Lake, Replicas, create_repository
from tests.support.faults.gates import GatedKv

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId, TagId
from tarn.core.listing.pages import PageRequest
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Group, Partition
from tarn.kv.records import encode_branch
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.records.expired import READ_CACHE_SECONDS
from tarn_graveler.versioning.merges import Destination, MergeRequest, PickRequest
from tarn_graveler.versioning.range_reverts import RangeRevertRequest

OTHER = BranchId("other")


async def refused(work: Awaitable[object]) -> TarnError:
    with pytest.raises(TarnError) as raised:
        await work
    assert raised.value.reason is Reason.EXPIRED_COMMIT
    return raised.value


async def line(lake: Lake) -> tuple[CommitId, CommitId, CommitId]:
    """Three commits of main whose reflog has expired, so that nothing but their rows keeps the first two."""
    found = [await commit(lake, "a", 1), await commit(lake, "b", 2), await commit(lake, "c", 3)]
    await forget_reflog(lake)
    return found[0], found[1], found[2]


async def forget_reflog(lake: Lake) -> None:
    """Removes the rows of the reflog, as their expiry does. The newest entry is in the branch record still."""
    await lake.kv.drop_partition(lake.graveler.repositories.keys_of(lake.repository).reflog)


async def keep(_: object) -> None:
    """Announces no tokens."""


async def test_an_expired_commit_keeps_its_listing_only(lake: Lake) -> None:
    first, second, head = await line(lake)
    assert await expire(lake, first, head) == 2
    whole, emptied = await roots(lake)
    assert emptied == {await listing_of(lake, first)}
    kept = {await listing_of(lake, second), await listing_of(lake, head)}
    assert kept <= whole, "a head and a commit without a row keep their objects"


@pytest.mark.parametrize("failed", [0, 1])
async def test_a_row_that_failed_ends_the_expiry(
    lake: Lake, failed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan whose rows may be missing must not go on: the collection would read roots that the plan took for gone."""
    first, second, _ = await line(lake)
    write = lake.kv.set_many

    async def set_many(partition: Partition, groups: Sequence[Group]) -> list[TarnError | None]:
        answers = await write(partition, [*groups[:failed], *groups[failed + 1 :]])
        answers.insert(failed, TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "refused"))
        return answers

    monkeypatch.setattr(lake.kv, "set_many", set_many)
    with pytest.raises(TarnError) as raised:
        await expire(lake, first, second)
    assert raised.value.kind is Kind.UNAVAILABLE
    monkeypatch.setattr(lake.kv, "set_many", write)
    assert await expire(lake, first, second) == 1, "the call is repeated"


async def test_expiry_is_durable_and_the_first_rule_stays(lake: Lake) -> None:
    first, _, _ = await line(lake)
    assert await expire(lake, first) == 1
    lake.clock.advance(100)
    assert await expire(lake, first) == 0
    found = await lake.graveler.expired.find(lake.repository, [first])
    assert found[first].rule == RULE
    assert found[first].time_us < lake.clock.now_us() - 50_000_000


async def test_a_commit_that_was_only_shown_is_looked_for_again(
    lake: Lake, replicas: Replicas
) -> None:
    first, _, _ = await line(lake)
    async with replicas.replica() as other:
        assert await other.expired.find(lake.repository, [first]) == {}
        assert await expire(lake, first) == 1
        await refused(other.reading.page(lake.repository, first, PageRequest("", "", "", 10)))


@pytest.mark.parametrize("named_by", ["branch", "tag", "reflog", "outbox"])
async def test_refs_and_reflogs_are_roots_whatever_rows_say(lake: Lake, named_by: str) -> None:
    first, _, _ = await line(lake)
    graveler, name = lake.graveler, lake.branch(OTHER)
    if named_by == "tag":
        await graveler.tags.create(lake.repository, TagId("v1"), first)
    else:
        await graveler.branches.create(name, first)
    if named_by == "reflog":
        await graveler.branches.delete(name, keep)
    if named_by == "outbox":
        new = NewHead(
            await head_of(lake), await graveler.commits.get(lake.repository, await head_of(lake))
        )
        await graveler.moves.move_to(name, new, first, force=False)
        await forget_reflog(lake)
    await expire(lake, first)
    assert await listing_of(lake, first) in (await roots(lake))[0]


@pytest.mark.parametrize("is_expired", [False, True])
async def test_a_branch_from_a_tag_that_goes_before_it_is_read_keeps_its_commit(
    lake: Lake, is_expired: bool
) -> None:
    """Branches are read, the branch is created, the tag is deleted, and then tags are read: neither is found.

    A commit without an expired row keeps its objects by that. No branch is created at another one.
    """
    first, _, _ = await line(lake)
    graveler, tag = lake.graveler, TagId("v1")
    await graveler.tags.create(lake.repository, tag, first)
    if is_expired:
        await expire(lake, first)
    page = await graveler.roots.page(lake.repository, "", 100)
    kept = set[str]()
    stages = [page.stage]
    while page.cursor:
        if page.stage == "branches":
            creation = graveler.branches.create(lake.branch(OTHER), first)
            await (refused(creation) if is_expired else creation)
            await graveler.tags.delete(lake.repository, tag)
        page = await graveler.roots.page(lake.repository, page.cursor, 100)
        stages.append(page.stage)
        kept |= page.metarange_ids.keys() - page.emptied_ids.keys()
    assert stages.count("branches") == 1
    assert (await listing_of(lake, first) in kept) is not is_expired


async def whole_roots(
    lake: Lake, beside: Callable[[str], Awaitable[None]] | None = None
) -> set[str]:
    """Reads all roots, and calls `beside` with the stage of each page after it; returns the listings with objects."""
    kept, cursor = set[str](), ""
    while True:
        page = await lake.graveler.roots.page(lake.repository, cursor, 100)
        kept |= page.metarange_ids.keys() - page.emptied_ids.keys()
        if beside is not None:
            await beside(page.stage)
        if not (cursor := page.cursor):
            return kept


@pytest.mark.parametrize("lands_in", ["mark", "sweep"])
@pytest.mark.parametrize("after", ["branches", "tags", "reflogs", "commits"])
@pytest.mark.parametrize("flees", ["", "by deletion", "by a move"])
async def test_a_row_that_lands_late_beside_a_branch_from_a_tag_that_goes_costs_no_object(
    lake: Lake, lands_in: str, after: str, flees: str
) -> None:
    """A row of a former run, of unknown outcome, lands while the roots are read. A sweep deletes what both reads miss.

    The branch is made from the tag after the branches were read, and the tag goes before tags are. From the row on,
    nothing else is made at the commit, so the next read cannot be escaped as this one was.
    """
    first, _, head = await line(lake)
    graveler, tag, name = lake.graveler, TagId("v1"), lake.branch(OTHER)
    await graveler.tags.create(lake.repository, tag, first)

    async def beside_mark(stage: str) -> None:
        if stage == "branches":
            await graveler.branches.create(name, first)
            await graveler.tags.delete(lake.repository, tag)
        if (lands_in, stage) == ("mark", after):
            await expire(lake, first)

    async def beside_sweep(stage: str) -> None:
        if (lands_in, stage) == ("sweep", after):
            await expire(lake, first)
        if stage != "uploads":
            return
        if lands_in == "mark":
            await refused(graveler.branches.create(lake.branch(BranchId("third")), first))
            await refused(graveler.tags.create(lake.repository, TagId("v2"), first))
        if flees == "by deletion":
            await graveler.branches.delete(name, keep)
        elif flees:
            new = NewHead(head, await graveler.commits.get(lake.repository, head))
            await graveler.moves.move_to(name, new, first, force=False)

    listing = await listing_of(lake, first)
    mark = await whole_roots(lake, beside_mark)
    assert (listing in mark) is (lands_in == "sweep" or after == "commits")
    assert listing in mark | await whole_roots(lake, beside_sweep)


@pytest.mark.parametrize("is_pending", [False, True])
async def test_a_head_is_a_root_without_its_entry_in_the_outbox(
    lake: Lake, is_pending: bool
) -> None:
    """As of a branch that is older than its reflog."""
    first, _, _ = await line(lake)
    made = await lake.graveler.branches.create(lake.branch(OTHER), first)
    partition = lake.graveler.repositories.keys_of(lake.repository).refs
    key = RepositoryKeys.branch(OTHER)
    (found,) = await lake.kv.get_many(partition, [key])
    assert found is not None
    bare = encode_branch(replace(made, outbox=()), is_pending=is_pending)
    await lake.kv.set_if(partition, key, bare, found.predicate)
    await expire(lake, first)
    assert await listing_of(lake, first) in (await roots(lake))[0]


async def head_of(lake: Lake, branch: BranchId = MAIN) -> CommitId:
    return (await lake.graveler.branches.fresh(lake.branch(branch))).branch.commit_id


async def test_reads_of_an_expired_commit_are_refused(lake: Lake) -> None:
    first, second, head = await line(lake)
    await lake.graveler.tags.create(lake.repository, TagId("v1"), second)
    await expire(lake, first, second, head)
    lake.clock.advance(READ_CACHE_SECONDS)
    reading = lake.graveler.reading
    for ref in (first, first[:12], "main~2", f"{head}~1", "v1~0~1"):
        error = await refused(reading.lookup(lake.repository, ref, "a"))
        assert RULE in error.message
        await refused(reading.page(lake.repository, ref, PageRequest("", "", "", 10)))
    for ref in ("main", "main@", "v1"):  # refs win
        assert await lake.get("a", ref) == 1
    assert (await lake.graveler.commits.get(lake.repository, first)).message == "a=1"


async def test_what_a_read_knows_is_old_for_seconds_only(lake: Lake, other: Lake) -> None:
    first, _, _ = await line(lake)
    assert await lake.get("a", first) == 1
    await expire(other, first)
    assert await lake.get("a", first) == 1, "read by what this replica knows"
    lake.clock.advance(READ_CACHE_SECONDS + 1)
    await refused(lake.get("a", first))
    await refused(other.get("a", first))


# ---- what brings old entries back


async def by_branch(lake: Lake, first: CommitId, _: CommitId, __: CommitId) -> object:
    return await lake.graveler.branches.create(lake.branch(OTHER), first)


async def by_tag(lake: Lake, first: CommitId, _: CommitId, __: CommitId) -> object:
    return await lake.graveler.tags.create(lake.repository, TagId("v1"), first)


async def by_move(lake: Lake, first: CommitId, _: CommitId, head: CommitId) -> object:
    new = NewHead(first, await lake.graveler.commits.get(lake.repository, first))
    return await lake.graveler.moves.move_to(lake.main, new, head, force=False)


async def by_forced_move(lake: Lake, first: CommitId, _: CommitId, head: CommitId) -> object:
    new = NewHead(first, await lake.graveler.commits.get(lake.repository, first))
    return await lake.graveler.moves.move_to(lake.main, new, head, force=True)


async def by_revert(lake: Lake, _: CommitId, second: CommitId, __: CommitId) -> object:
    return await lake.graveler.merges.revert(lake.main, PickRequest(second, "ann", "undo"))


async def by_range_revert(lake: Lake, first: CommitId, second: CommitId, __: CommitId) -> object:
    request = RangeRevertRequest(first, PickRequest(second, "ann", "undo"))
    return await lake.graveler.range_reverts.revert(lake.main, request)


async def by_cherry_pick(lake: Lake, first: CommitId, _: CommitId, __: CommitId) -> object:
    await lake.delete("a")
    await lake.commit("without a")
    return await lake.graveler.merges.cherry_pick(lake.main, PickRequest(first, "ann", "again"))


async def by_merge(lake: Lake, first: CommitId, _: CommitId, __: CommitId) -> object:
    request = MergeRequest(first, "ann", "merge", allow_empty=True)
    return await lake.graveler.merges.merge(lake.main, request)


async def by_what_if(lake: Lake, first: CommitId, _: CommitId, head: CommitId) -> object:
    request = MergeRequest(head, "ann", "merge", allow_empty=True)
    into = Destination("ref", first)
    return await lake.graveler.merge_branches.create(lake.branch(OTHER), first, into, request)


BRINGS = {
    each.__name__.removeprefix("by_"): each
    for each in (
        by_branch,
        by_tag,
        by_move,
        by_forced_move,
        by_revert,
        by_range_revert,
        by_cherry_pick,
        by_merge,
        by_what_if,
    )
}


@pytest.mark.parametrize("name", BRINGS)
async def test_nothing_brings_an_expired_commit_back(lake: Lake, name: str) -> None:
    first, second, head = await line(lake)
    await expire(lake, first)
    error = await refused(BRINGS[name](lake, first, second, head))
    assert error.kind is Kind.FAILED_PRECONDITION
    assert error.metadata["rule"] == RULE
    assert first in error.message
    branches = lake.graveler.branches
    if name != "cherry_pick":
        assert (await branches.fresh(lake.main)).branch.commit_id == head
    for ref in ("other", "v1"):
        with pytest.raises(TarnError, match="does not exist"):
            await lake.graveler.refs.resolve(lake.repository, ref)


async def test_a_revert_of_a_merge_looks_at_the_parent_that_it_takes_entries_from(
    lake: Lake,
) -> None:
    first = await commit(lake, "a", 1)
    await lake.graveler.branches.create(lake.branch(OTHER), first)
    await lake.put("b", 2, OTHER)
    request = CommitRequest("ann", "b")
    source = (await lake.graveler.committing.commit(lake.branch(OTHER), request)).commit_id
    await commit(lake, "c", 3)
    merges = lake.graveler.merges
    merged = (await merges.merge(lake.main, MergeRequest(source, "ann", "merge"))).commit_id
    await lake.graveler.branches.delete(lake.branch(OTHER), keep)
    await forget_reflog(lake)
    await expire(lake, source)
    error = await refused(
        merges.revert(lake.main, PickRequest(merged, "ann", "undo", parent_number=2))
    )
    assert source in error.message
    await merges.revert(lake.main, PickRequest(merged, "ann", "undo", parent_number=1))
    assert await lake.get("b") is None


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0, 5])
@pytest.mark.parametrize("name", BRINGS)
async def test_one_of_the_two_sees_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, gap: int
) -> None:
    """A commit expires at each request of what brings it back, and the roots are read soon after (rule 14).

    If the operation succeeds, what it made is among the roots that were read after the expired row was written.

    Args:
        tmp_path: for lakes.
        monkeypatch: counts requests.
        name: of the operation.
        gap: requests of the operation between the row and the roots.
    """
    outcomes: set[bool] = set()
    for number in range(200):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with fresh_lake(folder) as lake:
            first, second, head = await line(lake)
            moment = Moment(lake, first, number, gap)
            is_refused = False
            with monkeypatch.context() as patch:
                patch.setattr(GatedKv, "_run", moment.run)
                try:
                    await BRINGS[name](lake, first, second, head)
                except TarnError as error:
                    if error.reason is not Reason.EXPIRED_COMMIT:
                        raise
                    is_refused = True
            if is_refused:
                outcomes.add(False)
                continue
            if moment.left >= 0:
                break
            outcomes.add(True)
            kept = (await roots(lake))[0] if moment.roots is None else moment.roots
            made = (
                first if name in ("branch", "tag") else await head_of(lake, MADE_ON.get(name, MAIN))
            )
            assert await listing_of(lake, made) in kept, f"request {number}"
    assert outcomes == {True, False}


MADE_ON = {"what_if": OTHER}


class Moment:
    """Lets a commit expire before one request of an operation to the KV, and reads the roots before a later one.

    Attributes:
        left: requests before that; negative: it has expired.
        roots: those that were read; None before that.
    """

    def __init__(self, lake: Lake, commit_id: CommitId, at: int, gap: int) -> None:
        self.gap = gap
        self.lake = lake
        self.commit_id = commit_id
        self.left = at
        self.is_inside = False
        self.roots: set[str] | None = None
        self.original = GatedKv._run

    @property
    def run(self) -> Callable[..., Awaitable[Any]]:
        async def run(kv: GatedKv, *arguments: Any) -> Any:
            if not self.is_inside:
                self.left -= 1
                self.is_inside = True
                if self.left == -1:
                    await expire(self.lake, self.commit_id)
                if self.left == -1 - self.gap:
                    self.roots, _ = await roots(self.lake)
                self.is_inside = False
            return await self.original(kv, *arguments)

        return run


@asynccontextmanager
async def fresh_lake(folder: Path) -> AsyncIterator[Lake]:
    made = Replicas(folder)
    async with made.replica() as graveler:
        repository = await create_repository(graveler)
        yield Lake(graveler, repository, made.kv, made.clock, made.meters)
    await made.tasks.close()
    await made.kv.close()
    await made.blocks.close()

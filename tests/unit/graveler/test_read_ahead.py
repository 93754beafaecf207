"""Searches that go far back read pages of commits, and find what they would find without."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

import pytest
from lake import Lake

from tarn.block.mem import MemBlockStore
from tarn.core.commit import Commit, commit_id_of
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, MetarangeId
from tarn.kv.keys import RepositoryKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import Group, Partition, Row, Versioned
from tarn_graveler.graph import read_ahead
from tarn_graveler.graph.merge_base import merge_bases
from tarn_graveler.graph.read_ahead import ReadAhead
from tarn_graveler.records.commits import Commits

COUNT = 5_000


class CountingKv(MemKv):
    """Counts requests, and the greatest page."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = self.scans = self.page_max = 0

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        self.reads += bool(keys)
        return await super().get_many(partition, keys, settle=settle)

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        self.scans += 1
        self.page_max = max(self.page_max, limit)
        return await super().scan(partition, start, end, limit)


def line(count: int) -> list[Commit]:
    """A line of commits, and last another child of the root."""
    made: list[Commit] = []
    parents: tuple[CommitId, ...] = ()
    for number in range(count):
        made.append(Commit(parents, MetarangeId(""), "ann", "", number, number))
        parents = (commit_id_of(made[-1]),)
    made.append(Commit((commit_id_of(made[0]),), MetarangeId(""), "bob", "", 0, 1))
    return made


class History:
    """The rows of commits, in a store that counts."""

    def __init__(self, lake: Lake, commits: Sequence[Commit]) -> None:
        self.kv = CountingKv()
        self.repository = lake.repository
        self.ids = [commit_id_of(each) for each in commits]
        self._blocks = MemBlockStore(lake.clock)
        self._repositories = lake.graveler.repositories
        self.partition = self._repositories.keys_of(self.repository).commits

    def replica(self) -> Commits:
        """Returns commits with an empty cache."""
        return Commits(self.kv, self._blocks, self._repositories)

    async def bases(self, ahead: ReadAhead, left: int, right: int) -> list[int]:
        """The places of the merge bases of two commits."""
        ids = self.ids
        with ahead.search(self.repository) as read:
            found = await merge_bases(read, [ids[left]], [ids[right]], limit=32)
        return [ids.index(each) for each in found]


@pytest.fixture(scope="module")
def commits() -> list[Commit]:
    return line(COUNT)


@pytest.fixture
async def history(lake: Lake, commits: list[Commit]) -> History:
    made = History(lake, commits)
    await made.replica().add_rows(made.repository, commits)
    return made


async def test_a_branch_far_behind_takes_pages_and_not_a_read_for_each_commit(
    history: History,
) -> None:
    ahead = ReadAhead(history.replica())
    assert await history.bases(ahead, COUNT - 1, COUNT) == [0]
    assert history.kv.reads + history.kv.scans < COUNT // 20
    assert history.kv.page_max <= 500
    assert ahead.held_bytes == 0, "a search that is over holds nothing"


async def test_a_merge_base_that_is_near_is_found_without_scans(history: History) -> None:
    ahead = ReadAhead(history.replica())
    assert await history.bases(ahead, COUNT - 1, COUNT - 50) == [COUNT - 50]
    assert history.kv.scans == 0
    assert history.kv.reads == 49, "the two commits are read together"


async def test_every_pair_of_a_history_with_merges_has_the_same_bases_with_pages_and_without(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "_READS_ALONE", 0)
    monkeypatch.setattr(read_ahead, "_PAGE_ROWS_FIRST", 7)
    monkeypatch.setattr(read_ahead, "_PAGE_ROWS_MAX", 7)
    random = Random(5)
    commits: list[Commit] = []
    for number in range(80):
        recent = commits[-6:]
        parents = random.sample(recent, min(len(recent), random.randint(1, 2)))
        generation = 1 + max((each.generation for each in parents), default=-1)
        ids = tuple(map(commit_id_of, parents))
        commits.append(Commit(ids, MetarangeId(""), "ann", "", number, generation))
    made = History(lake, commits)
    await made.replica().add_rows(made.repository, commits)
    plain = partial(made.replica().get_many, made.repository)
    for _ in range(60):
        left, right = (random.randrange(len(commits)) for _ in range(2))
        expected = await merge_bases(plain, [made.ids[left]], [made.ids[right]], limit=32)
        before = made.kv.scans
        ahead = ReadAhead(made.replica())
        assert await made.bases(ahead, left, right) == [made.ids.index(each) for each in expected]
        assert made.kv.scans > before
        assert ahead.held_bytes == 0


async def test_beyond_the_bound_a_search_reads_commit_by_commit(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "HELD_BYTES_MAX", 1)
    ahead = ReadAhead(history.replica())
    assert await history.bases(ahead, COUNT - 1, COUNT) == [0]
    assert history.kv.reads > COUNT // 2, "rows of a page are used before the next page is read"


async def test_while_one_search_scans_another_reads(history: History) -> None:
    ahead = ReadAhead(history.replica())
    ahead.is_scanning = True
    assert await history.bases(ahead, 400, COUNT) == [0]
    assert history.kv.scans == 0
    assert history.kv.reads == 401


async def test_a_row_of_a_page_that_is_of_another_commit_is_damage(history: History) -> None:
    """And no search goes on with it."""
    (other,) = await history.kv.get_many(history.partition, [RepositoryKeys.commit(history.ids[9])])
    assert other is not None
    key = RepositoryKeys.commit(history.ids[10])
    await history.kv.set_many(history.partition, [Group(key, ((key, other.value),))])
    with pytest.raises(TarnError) as raised:
        await history.bases(ReadAhead(history.replica()), COUNT - 1, COUNT)
    assert raised.value.kind is Kind.CORRUPT


async def test_a_missing_commit_is_not_found_and_the_rows_are_let_go(history: History) -> None:
    await history.kv.delete_many(history.partition, [RepositoryKeys.commit(history.ids[10])])
    ahead = ReadAhead(history.replica())
    with pytest.raises(TarnError) as raised:
        await history.bases(ahead, COUNT - 1, COUNT)
    assert raised.value.reason is Reason.COMMIT_NOT_FOUND
    assert ahead.held_bytes == 0

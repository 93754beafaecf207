"""Iterators over refs and commits return what a sorted list has, also beside writers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lake import Lake, create_repository, keep_tokens

from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId, RepositoryId, TagId
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.port import Group
from tarn.kv.records import encode_branch, encode_tag
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.cursors.cursor import Cursor
from tarn_graveler.iterators.commits import LineHeadSource
from tarn_graveler.iterators.heads import HeadSource

NUMBERS = count()
# Every example works in a repository of its own, so that examples may share the store.
EXAMPLES = settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)

NAMES = st.text("ab-Z9", min_size=1, max_size=3).filter(lambda name: name[0] != "-")
SORTS = ["branches", "tags", "repositories", "commits", "line_heads", "branches_by_commit"]
CALLS = st.lists(
    st.tuples(st.sampled_from(["next", "page", "seek", "seek_behind"]), st.integers(0, 99)),
    min_size=1,
    max_size=12,
)


async def commit_on(lake: Lake, *parents: CommitId) -> CommitId:
    """Makes a commit that no branch names."""
    commits = lake.graveler.commits
    known = [await commits.get(lake.repository, each) for each in parents]
    generation = 1 + max((each.generation for each in known), default=-1)
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    listing = (await commits.get(lake.repository, head)).metarange_id
    message = f"{next(NUMBERS)}"
    commit = Commit(parents, listing, "ann", message, generation % 3, generation, ())
    return await commits.add(lake.repository, commit)


@dataclass
class Items:
    """Things of one sort in a lake, changed through the real services, and the keys that a cursor must return.

    Attributes:
        commits: by id, with their parents.
        heads: the commits of branches.
    """

    sort: str
    lake: Lake
    names: set[str] = field(default_factory=set)
    commits: dict[CommitId, tuple[CommitId, ...]] = field(default_factory=dict)
    heads: dict[str, CommitId] = field(default_factory=dict)

    @classmethod
    async def of(cls, sort: str, lake: Lake, names: Sequence[str]) -> Items:
        repository = await create_repository(lake.graveler, f"r{next(NUMBERS)}")
        made = cls(sort, replace(lake, repository=repository))
        first = (await lake.graveler.branches.fresh(made.lake.main)).branch.commit_id
        made.commits[first] = ()
        made.heads["main"] = first
        for name in names:
            await made.add(name)
        return made

    async def commit(self, choice: int) -> CommitId:
        """Makes a commit on earlier ones."""
        known = list(self.commits)
        parents = tuple(dict.fromkeys(known[choice * step % len(known)] for step in (1, 3)))
        commit_id = await commit_on(self.lake, *parents[: choice % 3])
        self.commits[commit_id] = parents[: choice % 3]
        return commit_id

    async def add(self, name: str) -> None:
        graveler, repository = self.lake.graveler, self.lake.repository
        choice = sum(name.encode()) + len(self.commits)
        if self.sort == "repositories":
            if self.root + name not in self.names:
                await create_repository(graveler, self.root + name)
                self.names.add(self.root + name)
            return
        commit_id = await self.commit(choice)
        if self.sort == "tags" and name not in self.names:
            await graveler.tags.create(repository, TagId(name), commit_id)
            self.names.add(name)
        elif self.sort in {"branches", "branches_by_commit"} and name not in self.heads:
            await graveler.branches.create(self.lake.branch(BranchId(name)), commit_id)
            self.heads[name] = commit_id

    async def remove(self, name: str) -> None:
        """Removes a thing, if things of this sort can be removed."""
        graveler, repository = self.lake.graveler, self.lake.repository
        if self.sort == "tags" and name in self.names:
            await graveler.tags.delete(repository, name)
            self.names.remove(name)
        elif self.sort in {"branches", "branches_by_commit"} and name in self.heads:
            await graveler.branches.delete(self.lake.branch(BranchId(name)), keep_tokens)
            del self.heads[name]

    async def move(self, name: str) -> None:
        """Gives a branch another head."""
        if self.sort == "branches_by_commit" and name in self.heads:
            commit_id = await self.commit(len(name))
            commit = await self.lake.graveler.commits.get(self.lake.repository, commit_id)
            branch = self.lake.branch(BranchId(name))
            head = NewHead(commit_id, commit)
            await self.lake.graveler.moves.move_to(
                branch, head, self.heads[name], force=False, user_id="ann"
            )
            self.heads[name] = commit_id

    @property
    def root(self) -> str:
        """Prefix of the repositories of this example."""
        return f"{self.lake.repository.repository_id}-"

    @property
    def keys(self) -> list[str]:
        """By definition."""
        if self.sort == "branches":
            return sorted(self.heads)
        if self.sort == "branches_by_commit":
            return sorted(commit_id + name for name, commit_id in self.heads.items())
        if self.sort == "commits":
            return sorted(self.commits)
        if self.sort == "line_heads":
            firsts = {parents[0] for parents in self.commits.values() if parents}
            return sorted(set(self.commits) - firsts)
        return sorted(self.names)

    def cursor(self, prefix: str = "", limit: int | None = None) -> Cursor[str, object]:
        iterators, repository = self.lake.graveler.iterators, self.lake.repository
        if self.sort == "repositories":
            return iterators.repositories(prefix=self.root + prefix, limit=limit)  # type: ignore[return-value]
        opened: Callable[..., Cursor[str, object]] = getattr(iterators, self.sort)
        return opened(repository, prefix=prefix, limit=limit)


def places(keys: Sequence[str]) -> list[str]:
    """Keys, and places before, between and behind them."""
    return ["!", *keys, *[key[:-1] + "~" for key in keys], *[key[:1] for key in keys if key], "~"]


@pytest.mark.parametrize("sort", SORTS)
@EXAMPLES
@given(st.lists(NAMES, max_size=14), CALLS, st.data())
async def test_calls_return_what_a_sorted_list_has(
    lake: Lake, sort: str, names: list[str], calls: list[tuple[str, int]], data: st.DataObject
) -> None:
    items = await Items.of(sort, lake, names)
    keys = items.keys
    assert [key async for key, _ in items.cursor()] == keys
    shorts = [key.removeprefix(items.root)[:2] for key in keys]
    prefix = data.draw(st.sampled_from(["", *[each[:1] for each in shorts], *shorts]))
    whole = (items.root if sort == "repositories" else "") + prefix
    limit = data.draw(st.none() | st.integers(0, 5))
    listed = [key for key in keys if key.startswith(whole)]
    cursor = items.cursor(prefix, limit)
    left, returned = listed, 0
    for call, number in calls:
        if call.startswith("seek"):
            place = data.draw(st.sampled_from(places(keys)))
            getattr(cursor, call)(place)
            is_left = place.__le__ if call == "seek" else place.__lt__
            left = [key for key in listed if is_left(key)]
            continue
        wanted = 1 if call == "next" else 1 + number % 5
        if call == "next":
            item = await anext(cursor, None)
            found = [] if item is None else [item[0]]
            over = item is None
        else:
            page = await cursor.page(wanted)
            found = [key for key, _ in page.items]
            over = page.next_after is None
        assert found == left[: len(found)]
        assert len(found) <= wanted
        left, returned = left[len(found) :], returned + len(found)
        assert limit is None or returned <= limit
        assert not over or not left or returned == limit


CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "move"]), NAMES), min_size=1, max_size=3
)


@pytest.mark.parametrize("sort", SORTS)
@EXAMPLES
@given(
    st.lists(NAMES, min_size=6, max_size=14, unique=True),
    st.lists(CHANGES, min_size=2, max_size=6),
    st.integers(1, 4),
)
async def test_changes_between_pages_neither_hide_nor_repeat_what_stays(
    lake: Lake, sort: str, names: list[str], changes: list[list[tuple[str, str]]], size: int
) -> None:
    items = await Items.of(sort, lake, names)
    before = items.keys
    ever, gone = set(before), set[str]()
    cursor = items.cursor()
    found: list[str] = []
    after: str | None = ""
    turns = iter(changes)
    while after is not None:
        page = await cursor.page(size)
        assert len(page.items) <= size
        found += [key for key, _ in page.items]
        after = page.next_after
        for call, name in next(turns, []):
            held = set(items.keys)
            await {"add": items.add, "remove": items.remove, "move": items.move}[call](name)
            gone |= held - set(items.keys)
            ever |= set(items.keys)
    assert found == sorted(set(found)), "in order, none twice"
    assert set(found) <= ever
    stayed = set(before) - gone
    assert stayed <= set(found)
    if sort == "line_heads":
        assert set(before) <= {each for key in found for each in first_line(items, key)}
    if sort == "branches_by_commit":
        assert found == before, "each branch once, with the head that it had"


def first_line(items: Items, commit_id: str) -> list[str]:
    """A commit and its first parents."""
    found = [CommitId(commit_id)]
    while parents := items.commits[found[-1]]:
        found.append(parents[0])
    return list(map(str, found))


# ---- costs


@pytest.mark.parametrize("sort", ["branches", "tags", "commits"])
async def test_a_page_reads_its_rows_only_wherever_it_is(lake: Lake, sort: str) -> None:
    items = await Items.of(sort, lake, [f"n{number:03}" for number in range(60)])
    keys = items.keys
    kv = lake.kv
    for place in (keys[0], keys[30], keys[-1]):
        cursor = items.cursor()
        cursor.seek(place)
        kv.rows = 0  # type: ignore[attr-defined]
        page = await cursor.page(5)
        assert page.items[0][0] == place
        assert kv.rows == len(page.items) <= 5  # type: ignore[attr-defined]


async def test_seeks_of_sorted_heads_read_nothing_more(lake: Lake) -> None:
    items = await Items.of("branches_by_commit", lake, [f"n{number}" for number in range(20)])
    cursor = items.cursor()
    await cursor.page(1)
    lake.kv.rows = 0  # type: ignore[attr-defined]
    cursor.seek(items.keys[10])
    assert [key for key, _ in (await cursor.page(3)).items] == items.keys[10:13]
    assert lake.kv.rows == 0  # type: ignore[attr-defined]


async def test_a_read_of_commits_holds_a_bounded_number(lake: Lake) -> None:
    items = await Items.of("commits", lake, [])
    for _ in range(120):
        await commit_on(items.lake)
    assert len((await items.cursor().page(1000)).items) == 100
    assert len([key async for key, _ in items.cursor()]) == 121


# ---- what is not listed


async def test_what_is_being_created_is_passed_over(lake: Lake) -> None:
    graveler, refs = lake.graveler, lake.graveler.repositories.keys_of(lake.repository).refs
    branch = (await graveler.branches.fresh(lake.main)).branch
    await graveler.tags.create(lake.repository, TagId("v1"), branch.commit_id)
    tag = await graveler.tags.get(lake.repository, "v1")
    for name in ("a", "z"):
        pending = encode_branch(branch, is_pending=True)
        await lake.kv.set_if(refs, RepositoryKeys.branch(name), pending, None)
        pending = encode_tag(replace(tag, is_pending=True))
        await lake.kv.set_if(refs, RepositoryKeys.tag(name), pending, None)
    await graveler.repositories.reserve(RepositoryId("aaa"), "", BranchId("main"))
    iterators = graveler.iterators
    assert [name async for name, _ in iterators.branches(lake.repository)] == ["main"]
    assert [name async for name, _ in iterators.tags(lake.repository)] == ["v1"]
    assert [name async for name, _ in iterators.repositories()] == ["lake"]
    every = iterators.branch_records(lake.repository)
    assert [name async for name, _ in every] == ["a", "main", "z"], "a deletion marks them, too"


@pytest.mark.parametrize("sort", [each for each in SORTS if each != "repositories"])
async def test_rows_that_a_deletion_drops_are_no_end(lake: Lake, sort: str) -> None:
    """A collection that took a dropped partition for an empty one would delete all blocks."""
    items = await Items.of(sort, lake, ["b1", "b2", "b3"])
    cursor = items.cursor()
    assert (await cursor.page(1)).next_after is not None
    cursors: list[Callable[[], Awaitable[object]]] = [lambda: items.cursor().page(9)]
    if sort != "branches_by_commit":  # it has read everything
        cursors.append(lambda: cursor.page(9))
    repository = items.lake.repository
    await lake.graveler.repositories.mark_deleted(repository)
    keys = lake.graveler.repositories.keys_of(repository)
    for partition in (keys.refs, keys.commits):
        await lake.kv.drop_partition(partition)
    for read in cursors:
        with pytest.raises(TarnError) as raised:
            await read()
        assert raised.value.reason is Reason.REPOSITORY_NOT_FOUND


async def test_no_name_has_a_prefix_that_is_longer_than_keys(lake: Lake) -> None:
    """An engine may refuse such a key, so it is not asked."""
    lake.kv.scans = 0  # type: ignore[attr-defined]
    cursor = lake.graveler.iterators.branches(lake.repository, prefix="m" * 5000)
    assert (await cursor.page(5)).items == []
    assert lake.kv.scans == 0  # type: ignore[attr-defined]


# ---- order by commit, and heads of lines


async def test_branches_on_one_commit_are_found_by_it(lake: Lake) -> None:
    items = await Items.of("branches_by_commit", lake, ["other"])
    shared = items.heads["main"]
    for name in ("b", "a"):
        await lake.graveler.branches.create(items.lake.branch(BranchId(name)), shared)
    cursor = lake.graveler.iterators.branches_by_commit(items.lake.repository, prefix=shared)
    assert [(head.commit_id, head.branch_id) async for _, head in cursor] == [
        (shared, "a"),
        (shared, "b"),
        (shared, "main"),
    ]


async def test_a_commit_whose_child_is_made_meanwhile_is_listed_or_its_child_is(lake: Lake) -> None:
    """In one pass, a commit could be hidden by a child that is not listed itself."""
    for _ in range(8):
        items = await Items.of("line_heads", lake, [])
        tips = sorted([await commit_on(items.lake) for _ in range(6)])
        cursor = items.cursor()
        first = [key for key, _ in (await cursor.page(2)).items]
        late = await commit_on(items.lake, tips[-1])
        found = first + [key async for key, _ in cursor]
        assert tips[-1] in found, f"its child {late} does not stand for it"


async def test_too_many_branches_or_commits_are_refused(lake: Lake) -> None:
    iterators, repository = lake.graveler.iterators, lake.repository
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    for name in ("a", "b"):
        await lake.graveler.branches.create(lake.branch(BranchId(name)), head)
        head = await commit_on(lake, head)
    branches, commits = iterators._branches(repository), iterators._commits_by_id(repository)
    assert len((await HeadSource(branches, heads_max=3).read("", 9)).items) == 3
    assert (await LineHeadSource(commits, commits, first_parents_max=2).read("", 9)).items
    for work in (
        HeadSource(branches, heads_max=2).read("", 9),
        LineHeadSource(commits, commits, first_parents_max=1).read("", 9),
    ):
        with pytest.raises(TarnError) as raised:
            await work
        assert raised.value.kind is Kind.EXHAUSTED


async def test_a_damaged_commit_is_reported(lake: Lake) -> None:
    partition = lake.graveler.repositories.keys_of(lake.repository).commits
    root = RepositoryKeys.commit("")
    ((key, value),) = await lake.kv.scan(partition, root, after_prefix(root), 2)
    wrong = RepositoryKeys.commit("f" * 64)
    assert key != wrong
    await lake.kv.set_many(partition, [Group(wrong, ((wrong, value),))])
    with pytest.raises(TarnError) as raised:
        assert [item async for item in lake.graveler.iterators.commits(lake.repository)]
    assert raised.value.kind is Kind.CORRUPT

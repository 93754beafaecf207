"""Iterators over staged rows and listings return what a sorted list has, also beside writers and commits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lake import Lake, create_repository, entry

from tarn.core.branch import seal
from tarn.core.entry import is_tombstone, unpack
from tarn.core.errors import Reason, TarnError
from tarn.kv.keys import PATHS_END, PATHS_START, path_of
from tarn_graveler.branch.handle import BranchHandle, claims_nothing
from tarn_graveler.cursors.cursor import Cursor
from tarn_graveler.iterators.entries import StagedRow

T = TypeVar("T")

NUMBERS = count()
EXAMPLES = settings(
    max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
PATHS = st.text("a/é\x7f\U0010ffff", min_size=1, max_size=3)
WORK = st.tuples(st.sampled_from(["put", "put", "delete", "commit", "seal"]), PATHS)
CALLS = st.lists(
    st.tuples(st.sampled_from(["next", "page", "seek", "seek_behind"]), st.integers(1, 5)),
    min_size=1,
    max_size=10,
)


@dataclass
class Branch:
    """The branch `main` of a new repository, and what it must hold."""

    lake: Lake
    objects: dict[str, int]

    @classmethod
    async def of(cls, lake: Lake) -> Branch:
        repository = await create_repository(lake.graveler, f"r{next(NUMBERS)}")
        return cls(replace(lake, repository=repository), {})

    async def do(self, call: str, path: str) -> None:
        if call == "put":
            size = next(NUMBERS)
            await self.lake.put(path, size)
            self.objects[path] = size
        elif call == "delete":
            await self.lake.delete(path)
            self.objects.pop(path, None)
        elif call == "commit":
            await self.lake.commit(allow_empty=True)
        elif call == "seal":
            branches = self.lake.graveler.branches
            if len((await branches.fresh(self.lake.main)).branch.sealed) < 3:
                await BranchHandle(branches, self.lake.main).change(
                    lambda now, op_id: seal(now, branches.new_token(), op_id), claims_nothing
                )
        else:
            await self.lake.drop_everything_removed()

    async def rows(self) -> dict[str, tuple[StagedRow, ...]]:
        """All rows of all tokens, read at once."""
        graveler = self.lake.graveler
        record = (await graveler.branches.fresh(self.lake.main)).branch
        keys = graveler.repositories.keys_of(self.lake.repository)
        found: dict[str, tuple[StagedRow, ...]] = {}
        for depth, token in enumerate(record.tokens):
            partition = keys.token(self.lake.main.branch_id, token)
            for key, packed in await self.lake.kv.scan(partition, PATHS_START, PATHS_END, 10_000):
                found[path_of(key)] = (
                    *found.get(path_of(key), ()),
                    StagedRow(depth, packed),
                )
        return found

    def staged(
        self, prefix: str = "", limit: int | None = None
    ) -> Cursor[str, tuple[StagedRow, ...]]:
        return self.lake.graveler.iterators.staged(self.lake.main, prefix=prefix, limit=limit)

    def entries(
        self, ref: str = "main", prefix: str = "", limit: int | None = None
    ) -> Cursor[str, bytes]:
        iterators = self.lake.graveler.iterators
        return iterators.entries(self.lake.repository, ref, prefix=prefix, limit=limit)


@pytest.mark.parametrize("sort", ["staged", "entries"])
@EXAMPLES
@given(st.lists(WORK, max_size=25), CALLS, st.data())
async def test_calls_return_what_a_sorted_list_has(
    lake: Lake,
    sort: str,
    work: list[tuple[str, str]],
    calls: list[tuple[str, int]],
    data: st.DataObject,
) -> None:
    branch = await Branch.of(lake)
    for call, path in work:
        await branch.do(call, path)
    rows = await branch.rows()
    assert {path: found async for path, found in branch.staged()} == rows
    listed = {path: unpack(packed).size async for path, packed in branch.entries()}
    assert listed == branch.objects
    keys = sorted(rows if sort == "staged" else listed)
    prefix = data.draw(st.sampled_from(["", *[key[:1] for key in keys], *keys]))
    limit = data.draw(st.none() | st.integers(0, 5))
    cursor: Cursor[str, object] = (
        branch.staged(prefix, limit) if sort == "staged" else branch.entries("main", prefix, limit)  # type: ignore[assignment]
    )
    keys = [key for key in keys if key.startswith(prefix)]
    left, returned = keys, 0
    for call, number in calls:
        if call.startswith("seek"):
            place = data.draw(PATHS)
            getattr(cursor, call)(place)
            left = [key for key in keys if key > place or (key == place and call == "seek")]
            continue
        if call == "next":
            item = await anext(cursor, None)
            found, over = ([], True) if item is None else ([item[0]], False)
        else:
            page = await cursor.page(number)
            assert len(page.items) <= number
            found, over = [key for key, _ in page.items], page.next_after is None
        assert found == left[: len(found)]
        left, returned = left[len(found) :], returned + len(found)
        assert limit is None or returned <= limit
        assert not over or not left or returned == limit


BESIDE = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "commit", "seal", "drop"]), PATHS), max_size=3
)


@EXAMPLES
@given(
    st.lists(PATHS, min_size=4, max_size=10, unique=True),
    st.lists(BESIDE, min_size=2, max_size=5),
    st.integers(1, 3),
)
async def test_writers_and_commits_between_pages_hide_nothing(
    lake: Lake, paths: list[str], beside: list[list[tuple[str, str]]], size: int
) -> None:
    branch = await Branch.of(lake)
    for number, path in enumerate(paths):
        await branch.do("put", path)
        if number == len(paths) // 2:
            await branch.do("commit", "")
    stays = dict(branch.objects)

    async def change() -> None:
        for call, path in next(turns, []):
            if call == "put" or (call == "delete" and path in stays):
                stays.pop(path, None)
            await branch.do(call, path)

    turns = iter(beside)
    listed = await pages(branch.entries(), size, change)
    assert [path for path, _ in listed] == sorted({path for path, _ in listed})
    seen = {path: unpack(packed).size for path, packed in listed}
    assert stays.items() <= seen.items()

    await branch.do("put", paths[0])
    stays = dict(branch.objects)
    turns = iter(beside)
    # A collection reads what is staged first, and heads afterwards: entries move that way.
    staged = await pages(branch.staged(), size, change)
    assert [path for path, _ in staged] == sorted({path for path, _ in staged})
    packed = [row.packed for _, rows in staged for row in rows]
    entries = {unpack(each).size for each in packed if not is_tombstone(each)}
    head = {unpack(each).size async for _, each in branch.entries("main@")}
    assert set(stays.values()) <= entries | head


async def pages(
    cursor: Cursor[str, T], size: int, change: Callable[[], Awaitable[None]]
) -> list[tuple[str, T]]:
    """Reads page by page; something changes after each."""
    found: list[tuple[str, T]] = []
    is_over = False
    while not is_over:
        page = await cursor.page(size)
        found += page.items
        is_over = page.next_after is None
        await change()
    return found


async def test_older_rows_of_a_path_are_listed_as_well(lake: Lake) -> None:
    """A commit that sealed the older one is about to take it."""
    branch = await Branch.of(lake)
    for call, path in [("put", "a"), ("seal", ""), ("put", "a"), ("put", "b"), ("delete", "b")]:
        await branch.do(call, path)
    found = [item async for item in branch.staged()]
    assert [(path, [row.depth for row in rows]) for path, rows in found] == [
        ("a", [0, 1]),
        ("b", [0]),
    ]
    sizes = [unpack(row.packed).size for row in found[0][1]]
    assert sizes[0] == branch.objects["a"] != sizes[1]


async def test_a_page_reads_its_rows_of_each_token_only(lake: Lake) -> None:
    branch = await Branch.of(lake)
    for number in range(40):
        await branch.do("put", f"p{number:02}")
        if number == 20:
            await branch.do("seal", "")
    for place in ("p00", "p20", "p39"):
        for cursor in (branch.staged(), branch.entries()):
            cursor.seek(place)
            lake.kv.rows = 0  # type: ignore[attr-defined]
            page = await cursor.page(3)
            assert page.items[0][0] == place
            assert lake.kv.rows <= 2 * (3 + 1)  # type: ignore[attr-defined]


async def test_staged_rows_are_read_by_a_record_that_is_in_force(lake: Lake, other: Lake) -> None:
    """Another replica has cached the record; a commit and a write came since."""
    await lake.put("a", 1)
    assert await other.get("a") == 1
    await lake.commit()
    await lake.put("b", 2)
    cursor = other.graveler.iterators.staged(other.main)
    assert [path async for path, _ in cursor] == ["b"]


async def test_a_large_page_of_staged_rows_takes_no_more_than_a_scan_may(lake: Lake) -> None:
    await lake.put("a", 1)
    assert len((await lake.graveler.iterators.staged(lake.main).page(1_000_000)).items) == 1


async def test_a_branch_that_is_deleted_is_no_end(lake: Lake) -> None:
    branch = await Branch.of(lake)
    for path in "abc":
        await branch.do("put", path)
    for cursor in (branch.staged(), branch.entries()):
        await cursor.page(1)
    await lake.graveler.branches.mark_deleted(branch.lake.main)
    for cursor in (branch.staged(), branch.entries()):
        with pytest.raises(TarnError) as raised:
            await cursor.page(1)
        assert raised.value.reason in {Reason.BRANCH_NOT_FOUND, Reason.REF_NOT_FOUND}


async def test_commits_and_tags_are_listed_as_well(lake: Lake) -> None:
    branch = await Branch.of(lake)
    await branch.do("put", "a")
    made = await branch.lake.commit()
    await branch.do("put", "b")
    assert [path async for path, _ in branch.entries(made.commit_id)] == ["a"]
    assert [unpack(packed).size async for _, packed in branch.entries("main~1")] == []
    assert entry(branch.objects["a"]) == (await anext(branch.entries("main@")))[1]

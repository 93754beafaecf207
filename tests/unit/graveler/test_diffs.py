"""Differences over the services: against dictionaries, and page by page while branches move."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest
from graveler_service import Service, reason_of
from lake import Lake
from permits import permit_for
from recursive_merge import UNDECIDED, RecursiveMerge

from tarn.block import differences
from tarn.block.rangereader import RangeReader
from tarn.client.diffs import DiffSummary, summary_of
from tarn.core.commit import Commit
from tarn.core.entry import unpack
from tarn.core.errors import Reason
from tarn.core.ids import BranchId
from tarn_cli.conflicts import conflict_lines, conflict_record
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.handlers.commits import CommitHandler
from tarn_graveler.views import diffing
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb

Content = dict[str, int]
"""Path → size; two versions of an object differ in their size."""
Counts = tuple[int, int, int, int, int]
Folders = dict[tuple[str, bool], Counts]

PATHS = [f"{folder}{name}" for folder in ("", "raw/", "raw/x/", "é/", "raw-") for name in "abc"]


def changes(left: Content, right: Content, prefix: str = "") -> dict[str, tuple[int, int]]:
    """Path → sizes on both sides, 0 for none; by definition."""
    return {
        path: (left.get(path, 0), right.get(path, 0))
        for path in sorted(left.keys() | right.keys())
        if path.startswith(prefix) and left.get(path) != right.get(path)
    }


def counts(found: dict[str, tuple[int, int]]) -> Counts:
    sides = list(found.values())
    return (
        sum(not left for left, _ in sides),
        sum(bool(left and right) for left, right in sides),
        sum(not right for _, right in sides),
        sum(right for _, right in sides),
        sum(left for left, _ in sides),
    )


def folders(found: dict[str, tuple[int, int]], prefix: str, delimiter: str) -> Folders:
    lines: dict[tuple[str, bool], dict[str, tuple[int, int]]] = {}
    for path, sides in found.items():
        first, dots, _ = path[len(prefix) :].partition(delimiter)
        lines.setdefault((prefix + first + dots, bool(dots)), {})[path] = sides
    return {line: counts(rows) for line, rows in lines.items()}


def counted(message: merge_pb.MergeCounts) -> Counts:
    return (
        message.added_count,
        message.changed_count,
        message.removed_count,
        message.added_bytes,
        message.removed_bytes,
    )


def lines_of(summary: DiffSummary) -> Folders:
    found = [((each.path, each.is_prefix), counted(each.counts)) for each in summary.folders]
    assert len(dict(found)) == len(found), "a folder is one line"
    return dict(found)


async def listed(fetch: Any, page_size: int = 3) -> dict[str, tuple[int, int]]:
    """The changes of all pages; sizes 0 for none."""
    found: dict[str, tuple[int, int]] = {}
    token = ""
    while True:
        page = await fetch(page_size=page_size, page_token=token)
        for path, *sides in zip(page.paths, page.left_entries, page.right_entries, strict=True):
            assert path not in found
            left, right = (unpack(packed).size if packed else 0 for packed in sides)
            found[path] = (left, right)
        if not (token := page.next_page_token):
            return found


@dataclass
class Model:
    """A repository over dictionaries; only ids of commits are taken from the answers."""

    parents: dict[str, list[str]] = field(default_factory=dict)
    contents: dict[str, Content] = field(default_factory=dict)

    def generation(self, commit_id: str) -> int:
        return max((1 + self.generation(each) for each in self.parents[commit_id]), default=0)

    def bases(self, left: str, right: str) -> list[str]:
        """The merge bases in order. The manual clock stands still, so ids break ties."""
        return self._recursive.bases([left], right)

    def base(self, left: str, right: str) -> Content:
        """The content of the merge base; of several, their fold."""
        return dict(self._recursive.base(self.bases(left, right)) or {})

    @property
    def _recursive(self) -> RecursiveMerge[str]:
        return RecursiveMerge(
            self.parents, self.contents, lambda each: (-self.generation(each), each)
        )

    def merged(self, source: str, dest: str) -> Content:
        """The source wins."""
        base = self.base(source, dest)
        theirs, ours = self.contents[source], self.contents[dest]
        result = dict(ours)
        for path in changes(base, theirs):
            if path in theirs:
                result[path] = theirs[path]
            else:
                result.pop(path, None)
        return result


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_differences_of_random_histories_are_those_of_dictionaries(
    service: Service, seed: int
) -> None:
    rng, model, graveler, admin = Random(seed), Model(), service.graveler, service.admin
    first = (await graveler.get_branch(admin, "lake", "main")).commit_id
    model.parents[first], model.contents[first] = [], {}
    heads = {"main": first}
    sizes = iter(range(1, 10_000))
    for step in range(24):
        name = rng.choice(list(heads))
        if step % 8 == 1:
            await graveler.create_branch(admin, "lake", f"b{step}", name)
            heads[f"b{step}"] = heads[name]
        elif step % 8 in (3, 6) and len(heads) > 1:
            source = rng.choice([each for each in heads if each != name])
            made = await graveler.merge(
                admin,
                "lake",
                name,
                source,
                default_side=merge_pb.MERGE_SIDE_SOURCE,
                allow_empty=True,
            )
            parents = [heads[name], heads[source]]
            model.contents[made.commit_id] = model.merged(parents[1], parents[0])
            model.parents[made.commit_id] = parents
            heads[name] = made.commit_id
        else:
            content = dict(model.contents[heads[name]])
            for path in rng.sample(PATHS, rng.randint(1, 6)):
                if path in content and rng.random() < 0.4:
                    await graveler.unstage(admin, "lake", name, path)
                    del content[path]
                else:
                    content[path] = next(sizes)
                    await service.put(path, content[path], name)
            staged = changes(model.contents[heads[name]], content)
            await check_uncommitted(service, name, staged)
            message = str(step)
            done = await graveler.create_commit(admin, "lake", name, message, allow_empty=True)
            model.parents[done.commit.commit_id] = [heads[name]]
            model.contents[done.commit.commit_id] = content
            heads[name] = done.commit.commit_id
    commits = list(model.contents)
    for _ in range(12):
        await check_refs(service, model, rng.choice(commits), rng.choice(commits), rng)


async def check_uncommitted(
    service: Service, branch: str, staged: dict[str, tuple[int, int]]
) -> None:
    graveler, admin = service.graveler, service.admin
    of_branch = partial(graveler.diff_uncommitted, admin, "lake", branch)
    assert await listed(of_branch) == staged
    count = partial(
        graveler.summarize_uncommitted, admin, "lake", branch, delimiter="/", page_size=2
    )
    summary = await summary_of(lambda token: count(page_token=token))
    assert counted(summary.counts) == counts(staged)
    assert lines_of(summary) == folders(staged, "", "/")


async def check_refs(service: Service, model: Model, left: str, right: str, rng: Random) -> None:
    graveler, admin = service.graveler, service.admin
    prefix, delimiter = rng.choice(["", "raw/", "ra", "é"]), rng.choice(["/", "a", "w/"])
    for from_base in (False, True):
        older, bases = model.contents[left], model.bases(left, right)
        start = bases[0] if from_base else left
        if from_base:
            older = {
                path: size if size != UNDECIDED else older.get(path, 0)
                for path, size in model.base(left, right).items()
            }
            older = {path: size for path, size in older.items() if size}
        expected = changes(older, model.contents[right], prefix)
        more: dict[str, Any] = {"from_merge_base": from_base, "prefix": prefix}
        assert await listed(partial(graveler.diff_refs, admin, "lake", left, right, **more)) == (
            expected
        )
        page = await graveler.diff_refs(admin, "lake", left, right, names_only=True, **more)
        assert (page.left_commit_id, page.right_commit_id) == (start, right)
        several = bases if from_base and len(bases) > 1 else []
        assert list(page.merge_base_commit_ids) == several
        assert page.left_entries == page.right_entries == []
        kinds = [
            commit_pb.DIFF_KIND_ADDED
            if not before
            else commit_pb.DIFF_KIND_CHANGED
            if after
            else commit_pb.DIFF_KIND_REMOVED
            for before, after in expected.values()
        ]
        assert (page.paths, page.kinds) == (list(expected), kinds)
        count = partial(graveler.summarize_diff, admin, "lake", left, right, **more)
        by_folder = partial(count, delimiter=delimiter, page_size=2)
        summary = await summary_of(lambda token, fetch=by_folder: fetch(page_token=token))  # type: ignore[misc]
        assert counted(summary.counts) == counts(expected)
        assert lines_of(summary) == folders(expected, prefix, delimiter)
        total = await count()
        assert (counted(total.counts), list(total.folders)) == (counts(expected), [])
        assert (total.left_commit_id, total.right_commit_id) == (start, right)
        assert total.merge_base_commit_ids == several


# ---- pages


async def two_commits(service: Service) -> None:
    """`main~1` has `c/1` to `c/9`, which `main` replaces; `side` leaves at `main~1`."""
    for size in (1, 2):
        for number in range(1, 10):
            await service.put(f"c/{number}", size)
        await service.graveler.create_commit(service.admin, "lake", "main", str(size))
    await service.graveler.create_branch(service.admin, "lake", "side", "main~1")


@pytest.mark.parametrize("from_base", [False, True])
async def test_a_branch_that_moves_between_pages_does_not_mix_two_differences(
    service: Service, from_base: bool
) -> None:
    await two_commits(service)
    graveler, admin = service.graveler, service.admin
    refs = partial(graveler.diff_refs, admin, "lake", "side", "main", from_merge_base=from_base)
    counting = partial(
        graveler.summarize_diff,
        admin,
        "lake",
        "side",
        "main",
        from_merge_base=from_base,
        delimiter="c",
        prefix="c/",
    )
    page, count = await refs(page_size=4), await counting(page_size=4)
    assert page.paths == ["c/1", "c/2", "c/3", "c/4"]
    # Both refs move: what is left of the difference becomes empty, and new changes appear.
    await graveler.merge(admin, "lake", "side", "main")
    for path in ("c/5", "c/55", "d"):
        await service.put(path, 7)
    await graveler.create_commit(admin, "lake", "main", "more")
    pages = await refs(page_size=100, page_token=page.next_page_token)
    assert pages.paths == ["c/5", "c/6", "c/7", "c/8", "c/9"]
    assert {unpack(packed).size for packed in pages.right_entries} == {2}
    assert (pages.left_commit_id, pages.right_commit_id) == (
        page.left_commit_id,
        page.right_commit_id,
    )
    rest = await counting(page_size=100, page_token=count.next_page_token)
    assert [each.path for each in rest.folders] == pages.paths
    assert counted(rest.counts) == (0, 5, 0, 10, 5)
    assert (rest.left_commit_id, rest.right_commit_id) == (
        page.left_commit_id,
        page.right_commit_id,
    )
    # A deleted ref does not end a listing either.
    await graveler.delete_branch(admin, "lake", "side")
    assert (await refs(page_token=page.next_page_token)).paths == pages.paths


async def criss_cross(service: Service) -> None:
    """Each branch merged the other one, and kept its own version of `a`; since then, `side` has a new `b` to `d`."""
    graveler, admin = service.graveler, service.admin
    await service.put("a", 1)
    await graveler.create_commit(admin, "lake", "main", "both")
    await graveler.create_branch(admin, "lake", "side", "main")
    for branch, size in (("main", 2), ("side", 3)):
        await service.put("a", size, branch)
        await graveler.create_commit(admin, "lake", branch, "own")
    heads = [
        (await graveler.get_branch(admin, "lake", each)).commit_id for each in ("main", "side")
    ]
    own = merge_pb.MERGE_SIDE_DESTINATION
    await graveler.merge(admin, "lake", "main", heads[1], default_side=own)
    await graveler.merge(admin, "lake", "side", heads[0], default_side=own)
    for path in "bcd":
        await service.put(path, 4, "side")
    await graveler.create_commit(admin, "lake", "side", "more")


async def test_pages_of_a_difference_from_several_merge_bases_are_of_one_difference(
    service: Service,
) -> None:
    await criss_cross(service)
    graveler, admin = service.graveler, service.admin
    refs = partial(graveler.diff_refs, admin, "lake", "main", "side", from_merge_base=True)
    counting = partial(
        graveler.summarize_diff, admin, "lake", "main", "side", from_merge_base=True, delimiter="/"
    )
    page, count = await refs(page_size=2), await counting(page_size=2)
    assert page.paths == ["a", "b"]
    assert [unpack(each).size for each in page.left_entries if each] == [2]
    # Both refs move so that nothing of the difference is left, and another replica answers.
    await graveler.merge(admin, "lake", "main", "side", default_side=merge_pb.MERGE_SIDE_SOURCE)
    await graveler.merge(admin, "lake", "side", "main")
    async with service.another_replica() as other:
        more: dict[str, Any] = {"from_merge_base": True, "page_token": page.next_page_token}
        rest = await other.graveler.diff_refs(admin, "lake", "main", "side", **more)
    assert rest.paths == ["c", "d"]
    assert len(page.merge_base_commit_ids) == 2
    assert rest.merge_base_commit_ids == page.merge_base_commit_ids
    assert rest.left_commit_id == page.left_commit_id == page.merge_base_commit_ids[0]
    folders = await counting(page_token=count.next_page_token)
    assert [each.path for each in folders.folders] == ["c", "d"]


async def test_a_preview_tells_which_conflicts_have_an_undecided_base(service: Service) -> None:
    """On all pages. `d` is an ordinary conflict."""
    await criss_cross(service)
    graveler, admin = service.graveler, service.admin
    await service.put("d", 9)
    await graveler.create_commit(admin, "lake", "main", "d")
    preview = await graveler.preview_merge(admin, "lake", "main", "side", page_size=1)
    assert len(preview.base_commit_ids) == 2
    assert preview.base_commit_id == preview.base_commit_ids[0]
    conflicts = graveler.all_conflicts(lambda: admin, "lake", preview, page_size=1)
    found = [each async for each in conflicts]
    assert [(each.path, each.is_base_undecided, each.base_entry) for each in found] == [
        ("a", True, b""),
        ("d", False, b""),
    ]
    lines = ["\n".join(conflict_lines(each)) for each in found]
    assert "undecided: the merge bases changed the path differently" in lines[0]
    assert "none: both sides added the path" in lines[1]
    assert [conflict_record(each)["base_undecided"] for each in found] == [True, False]


async def test_uncommitted_changes_are_listed_against_one_head(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    for number in range(1, 10):
        await service.put(f"{number}", 1)
    page = await graveler.diff_uncommitted(admin, "lake", "main", page_size=4)
    count = await graveler.summarize_uncommitted(admin, "lake", "main", delimiter="/", page_size=4)
    head = (await graveler.get_branch(admin, "lake", "main")).commit_id
    assert page.left_commit_id == count.commit_id == head
    await service.put("7", 3)
    more = await graveler.diff_uncommitted(
        admin, "lake", "main", page_size=2, page_token=page.next_page_token
    )
    assert more.paths == ["5", "6"]
    await graveler.create_commit(admin, "lake", "main", "all")
    await service.put("8", 3)
    for work in (
        graveler.diff_uncommitted(admin, "lake", "main", page_token=more.next_page_token),
        graveler.summarize_uncommitted(
            admin, "lake", "main", delimiter="/", page_token=count.next_page_token
        ),
    ):
        assert await reason_of(work) is Reason.REF_MOVED
    assert (await graveler.diff_uncommitted(admin, "lake", "main")).paths == ["8"]


async def test_a_folder_may_be_counted_on_several_pages(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page opens few ranges, and reads few staged rows, however large the folders are."""
    monkeypatch.setattr(differences, "_PAGE_RANGES_MAX", 2)
    monkeypatch.setattr(diffing, "_STAGED_ROWS", 3)
    monkeypatch.setattr(diffing, "_STAGED_READS_MAX", 2)
    graveler, admin = service.graveler, service.admin
    content = {f"{folder}/{number:02}": number + 1 for folder in "ab" for number in range(40)}
    for path, size in content.items():
        await service.put(path, size)
    expected = changes({}, content)
    for work in (
        partial(graveler.summarize_uncommitted, admin, "lake", "main"),
        partial(graveler.summarize_diff, admin, "lake", "main~1", "main"),
    ):
        if work.func == graveler.summarize_diff:
            await graveler.create_commit(admin, "lake", "main", "all")
        pages: list[Any] = []

        async def fetch(token: str, work: Any = work, pages: list[Any] = pages) -> Any:
            pages.append(await work(delimiter="/", page_token=token))
            return pages[-1]

        summary = await summary_of(fetch)
        assert lines_of(summary) == folders(expected, "", "/")
        assert counted(summary.counts) == counts(expected)
        assert len(pages) > 4, "each page has a bounded cost"
        assert not summary.has_more
        first = await summary_of(fetch, folders_max=1)
        assert [each.path for each in first.folders] == ["a/"]
        assert first.has_more


@pytest.mark.parametrize("delimiter", ["", "/"])
@pytest.mark.parametrize("bound", ["changes", "seconds"])
async def test_a_page_of_counts_ends_within_one_large_folder(
    service: Service, monkeypatch: pytest.MonkeyPatch, bound: str, delimiter: str
) -> None:
    """Whatever it holds: each page ends after some changes, and when it is late, but gets on."""
    monkeypatch.setattr(differences, "_PAGE_RANGES_MAX", 1_000)
    graveler, admin, clock = service.graveler, service.admin, service.replicas.clock
    content = {f"all/{number:03}": number + 1 for number in range(120)}
    for path, size in content.items():
        await service.put(path, size)
    await graveler.create_commit(admin, "lake", "main", "all")
    if bound == "changes":
        monkeypatch.setattr(diffing, "_COUNTED_MAX", 10)
    else:
        read = RangeReader.range

        async def slowly(*given: Any) -> Any:
            clock.advance(3.0)
            return await read(*given)

        monkeypatch.setattr(RangeReader, "range", slowly)
    pages: list[Any] = []

    async def fetch(token: str) -> Any:
        page = await graveler.summarize_diff(
            admin, "lake", "main~1", "main", delimiter=delimiter, page_token=token
        )
        pages.append(page)
        return page

    summary = await summary_of(fetch)
    assert counted(summary.counts) == counts(changes({}, content))
    assert len(pages) > 2
    assert all(each.counts.added_count < len(content) for each in pages)
    assert all(each.counts.added_count for each in pages[:-1]), "each page gets on"
    assert [each.path for each in summary.folders] == (["all/"] if delimiter else [])


async def test_limits_of_prefixes_and_delimiters(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(differences, "_PAGE_RANGES_MAX", 1_000)  # the ranges of tests are tiny
    graveler, admin = service.graveler, service.admin
    long = partial(graveler.summarize_diff, admin, "lake", "main", "main")
    assert await reason_of(long(delimiter="x" * 1025)) is Reason.INVALID_ARGUMENT
    assert await reason_of(long(prefix="x" * 1025)) is Reason.KEY_TOO_LONG
    assert await reason_of(long(page_size=-1)) is Reason.INVALID_ARGUMENT
    of_branch = partial(graveler.summarize_uncommitted, admin, "lake", "main")
    assert await reason_of(of_branch(delimiter="x" * 1025)) is Reason.INVALID_ARGUMENT
    assert await reason_of(of_branch(prefix="x" * 1025)) is Reason.KEY_TOO_LONG
    for number in range(1002):
        await service.put(f"{number:04}", 1)
    assert len((await of_branch(delimiter="/", page_size=5000)).folders) == 1000
    await graveler.create_commit(admin, "lake", "main", "many")
    of_refs = partial(graveler.summarize_diff, admin, "lake", "main~1", "main", delimiter="/")
    assert len((await of_refs(page_size=5000)).folders) == 1000
    assert len((await of_refs()).folders) == 100


async def test_unrelated_histories_differ_in_every_path_of_the_right_one(lake: Lake) -> None:
    await lake.put("a", 1)
    left = (await lake.commit()).commit_id
    built = await lake.graveler.committed.build(lake.repository.storage_namespace, None, [])
    another = Commit((), built.metarange_id, "ann", "another root", 0, 0, ())
    root = await lake.graveler.commits.add(lake.repository, another)
    other = lake.branch(BranchId("other"))
    await lake.graveler.branches.create(other, root)
    for path in ("b", "c", "d"):
        await lake.put(path, 2, other.branch_id)
    request = CommitRequest("ann", "unrelated")
    right = (await lake.graveler.committing.commit(other, request)).commit_id
    handler = CommitHandler(lake.graveler)
    message = commit_pb.DiffRefsRequest(
        repository_id="lake", left_ref=left, right_ref=right, from_merge_base=True, page_size=2
    )
    paths: list[str] = []
    while True:
        page = await handler.DiffRefs(message, permit_for(message, lake.repository))
        assert (page.left_commit_id, page.right_commit_id) == ("", right)
        assert set(page.left_entries) == {b""}
        paths += page.paths
        message.page_token = page.next_page_token
        if not message.page_token:
            break
    assert paths == ["b", "c", "d"]

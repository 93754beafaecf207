"""Pages of graveler's services: where they end, how large they get, and their tokens."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from graveler_service import Service, reason_of
from lake import Lake
from permits import permit_for

from tarn.client.commits import ChangesPage
from tarn.client.entries import ListingPage
from tarn.core.entry import ENTRY_BYTES_MAX, pack, unpack
from tarn.core.entry_check import HEADER_BYTES_MAX
from tarn.core.errors import Reason
from tarn.core.ids import PATH_BYTES_MAX, CommitId
from tarn.core.listing.diff import DiffPage
from tarn.rpc.wire.metadata import CHANNEL_OPTIONS
from tarn_graveler.handlers.commits import CommitHandler
from tarn_graveler.views.diffing import Diffing, UncommittedPage
from tarn_proto.graveler.v1 import commit_service_pb2 as pb
from tarn_proto.graveler.v1 import entry_service_pb2


class RecordedPages(Diffing):
    """Returns empty pages and records the requested limits."""

    def __init__(self) -> None:
        self.limits: list[int] = []

    async def commits(self, *_: object, limit: int, **__: object) -> DiffPage:
        self.limits.append(limit)
        return DiffPage([], [], [], None)

    async def uncommitted(self, *_: object, limit: int, **__: object) -> UncommittedPage:
        self.limits.append(limit)
        return UncommittedPage([], [], [], None, CommitId(""))


async def test_pages_of_differences_have_a_default_and_a_limit(lake: Lake) -> None:
    diffing = RecordedPages()
    handler = CommitHandler(replace(lake.graveler, diffing=diffing))
    for size in (0, 7, 1 << 30):
        refs = pb.DiffRefsRequest(
            repository_id="lake", left_ref="main", right_ref="main", page_size=size
        )
        await handler.DiffRefs(refs, permit_for(refs, lake.repository))
        branch = pb.DiffUncommittedRequest(repository_id="lake", branch_id="main", page_size=size)
        await handler.DiffUncommitted(branch, permit_for(branch, lake.repository))
    assert diffing.limits == [100, 100, 7, 7, 5000, 1000]


async def test_a_page_of_history_ends_before_it_is_too_large_for_a_message(
    service: Service,
) -> None:
    graveler, admin = service.graveler, service.admin
    words = "m" * 60_000
    made = ["Repository created"]
    for number in range(40):
        made.append(f"{number} {words}")
        metadata = {"more": words}
        await graveler.create_commit(
            admin, "lake", "main", made[-1], metadata=metadata, allow_empty=True
        )
    pages: list[list[str]] = []
    token = ""
    while token or not pages:
        page = await graveler.list_commits(admin, "lake", "main", page_size=1000, page_token=token)
        pages.append([commit.message for commit in page.commits])
        assert page.ByteSize() < 5 << 20
        token = page.next_page_token
    assert len(pages) == 2
    assert [*pages[0], *pages[1]] == made[::-1]


async def test_listings_page_through_staged_and_committed_rows(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    for number in range(30):
        await service.put(f"dir{number % 3}/{number:02d}", number)
        if number == 14:
            await graveler.create_commit(admin, "lake", "main", "half")
    paths: list[str] = []
    token = ""
    while True:
        page = await graveler.list_entries(
            admin, "lake", "main", prefix="dir1/", page_size=4, page_token=token
        )
        paths += page.paths
        token = page.next_page_token
        if not token:
            break
    assert paths == [f"dir1/{number:02d}" for number in range(1, 30, 3)]
    rolled = await graveler.list_entries(admin, "lake", "main", delimiter="/")
    assert rolled.paths == ["dir0/", "dir1/", "dir2/"]


async def test_a_folder_is_listed_until_its_only_object_is_deleted(service: Service) -> None:
    """The deletion hides the folder at once, in every page; the head shows it until the commit."""
    graveler, admin = service.graveler, service.admin
    for path in ("a/only", "b/first", "b/second", "c"):
        await service.put(path, 1)
    await graveler.create_commit(admin, "lake", "main", "three folders")

    async def folders(ref: str, page_size: int = 100) -> list[str]:
        def page(token: str) -> Awaitable[ListingPage]:
            return graveler.list_entries(
                admin, "lake", ref, delimiter="/", page_size=page_size, page_token=token
            )

        listed = await page("")
        paths = list(listed.paths)
        while listed.next_page_token:
            listed = await page(listed.next_page_token)
            paths += listed.paths
        return paths

    await graveler.unstage(admin, "lake", "main", "a/only")
    await graveler.unstage(admin, "lake", "main", "b/first")
    assert await folders("main") == await folders("main", page_size=1) == ["b/", "c"]
    assert await folders("main@") == ["a/", "b/", "c"]
    count = await graveler.summarize_uncommitted(admin, "lake", "main", delimiter="/")
    assert [(each.path, each.counts.removed_count) for each in count.folders] == [
        ("a/", 1),
        ("b/", 1),
    ]
    await graveler.create_commit(admin, "lake", "main", "one folder less")
    assert await folders("main@") == ["b/", "c"]


async def test_a_page_of_the_largest_entries_is_one_message(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    small = replace(unpack(service.entry(1)), content_type="x" * HEADER_BYTES_MAX)
    room = ENTRY_BYTES_MAX - len(pack(replace(small, expires="x"))) + 1
    largest = pack(replace(small, expires="x" * room))
    path = "p" * PATH_BYTES_MAX
    await service.stage(path, largest)
    page = await graveler.list_entries(admin, "lake", "main")
    assert page.paths == [path]
    message = entry_service_pb2.ListEntriesResponse(
        paths=page.paths * 1000, packed_entries=[largest] * 1000
    )
    assert message.ByteSize() < dict(CHANNEL_OPTIONS)["grpc.max_receive_message_length"]
    too_large = pack(replace(small, expires="x" * (room + 1)))
    staged = service.stage("q", too_large)
    assert await reason_of(staged) is Reason.METADATA_TOO_LARGE


async def test_differences_page_to_their_end_and_no_further(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    for path in ("p/a", "p/b", "p/c", "p/d", "p/e", "q"):
        await service.put(path, 1)
    of_branch = partial(graveler.diff_uncommitted, admin, "lake", "main")
    assert await paged(of_branch) == [["p/b", "p/c"], ["p/d", "p/e"]]
    await graveler.create_commit(admin, "lake", "main", "six")
    of_refs = partial(graveler.diff_refs, admin, "lake", "main~1", "main")
    assert await paged(of_refs) == [["p/b", "p/c"], ["p/d", "p/e"]]
    token = (await of_refs(page_size=1)).next_page_token
    other = graveler.diff_refs(admin, "lake", "main", "main~1", page_token=token)
    assert await reason_of(other) is Reason.INVALID_PAGE_TOKEN


async def paged(fetch: Callable[..., Awaitable[ChangesPage]]) -> list[list[str]]:
    """Returns the paths of all pages of two between `p/b` and `p/e`, one list for each page."""
    pages: list[list[str]] = []
    token = ""
    while token or not pages:
        page = await fetch(prefix="p/", after="p/a", page_size=2, page_token=token)
        pages.append(page.paths)
        token = page.next_page_token
    return pages


async def test_a_page_token_of_another_listing_is_refused(service: Service) -> None:
    for number in range(3):
        await service.put(f"{number}", 1)
    page = await service.graveler.list_entries(service.admin, "lake", "main", page_size=1)
    other = service.graveler.list_entries(
        service.admin, "lake", "main", prefix="1", page_token=page.next_page_token
    )
    assert await reason_of(other) is Reason.INVALID_PAGE_TOKEN


@pytest.mark.parametrize("sort", ["branches", "tags", "repositories"])
async def test_a_list_of_names_begins_behind_a_name(service: Service, sort: str) -> None:
    graveler, admin = service.graveler, service.admin
    for name in ("la", "lb", "lc", "ld"):
        await graveler.create_branch(admin, "lake", f"b{name}", "main")
        await graveler.create_tag(admin, "lake", f"t{name}", "main")
        await graveler.create_repository(admin, f"r{name}")
    kind = sort[0]

    async def names(**options: Any) -> tuple[list[str], str]:
        if sort == "branches":
            branches = await graveler.list_branches(admin, "lake", prefix="b", **options)
            return [each.branch_id for each in branches.branches], branches.next_page_token
        if sort == "tags":
            tags = await graveler.list_tags(admin, "lake", prefix="t", **options)
            return [each.tag_id for each in tags.tags], tags.next_page_token
        found = await graveler.list_repositories(admin, prefix="r", **options)
        return [each.repository_id for each in found.repositories], found.next_page_token

    assert (await names(after=f"{kind}la"))[0] == [f"{kind}l{each}" for each in "bcd"]
    assert (await names(after=f"{kind}lb0"))[0] == [f"{kind}lc", f"{kind}ld"], "a name of nothing"
    assert (await names(after="a"))[0][0] == f"{kind}la"
    assert (await names(after="z" * 1024))[0] == []
    assert await reason_of(names(after="z" * 1025)) is Reason.INVALID_ARGUMENT
    first, token = await names(after=f"{kind}la", page_size=1)
    assert first == [f"{kind}lb"]
    assert (await names(after=f"{kind}la", page_token=token))[0] == [f"{kind}lc", f"{kind}ld"]

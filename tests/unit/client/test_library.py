"""`tarn.client` as a library, over gRPC and the real services."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import assert_type

import pytest
from certificates import Authority
from served_service import ServiceClock, served_service

from tarn.client import (
    AsyncClient,
    Branch,
    Client,
    CommonPrefix,
    Listing,
    ObjectVersion,
    Side,
    TlsFiles,
)
from tarn.client.errors import (
    BranchDirtyError,
    BranchNotFoundError,
    CredentialNotFoundError,
    EntryNotFoundError,
    FailedPreconditionError,
    MergeConflictError,
    NotFoundError,
    OverloadedError,
    RefNotFoundError,
    SignatureMismatchError,
    TarnCallError,
    UnauthenticatedError,
    UnavailableError,
)
from tarn.client.operations import Operations
from tarn.client.raising import call_error
from tarn.core.errors import Kind, Reason, TarnError

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_branch_is_filled_committed_compared_and_merged(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        main = await tarn.get_branch("lake", "main")
        assert await tarn.create_branch("lake", "dev", "main") == await tarn.get_branch(
            "lake", "dev"
        )
        for path in ("raw/a", "raw/b", "top"):
            await served.service.put(path, len(path), "dev")

        changes = [each async for each in tarn.diff_uncommitted("lake", "dev")]
        assert [(each.path, each.kind) for each in changes] == [
            ("raw/a", "added"),
            ("raw/b", "added"),
            ("top", "added"),
        ]
        made = await tarn.create_commit("lake", "dev", "load", metadata={"job": "nightly"})
        assert (made.added_count, made.changed_count, made.removed_count) == (3, 0, 0)
        assert made.commit.parent_ids == (main.commit_id,)
        assert made.commit.metadata == {"job": "nightly"}
        assert made.commit == await tarn.get_commit("lake", "dev")
        assert made.commit.create_time.tzinfo is not None
        assert made.commit.author_time is None
        await tarn.create_branch("lake", "old", "main")
        long_ago = datetime(2001, 2, 3, tzinfo=UTC)
        dated = await tarn.create_commit("lake", "old", "m", allow_empty=True, author_time=long_ago)
        assert dated.commit.author_time == long_ago

        preview = await tarn.preview_merge("lake", "main", "dev")
        assert (preview.counts.added_count, preview.conflict_count) == (3, 0)
        assert preview.prefixes["raw/"].added_count == 2
        assert await tarn.find_merge_base("lake", "main", "dev") == preview.base_commit_ids
        merged = await tarn.merge("lake", "main", "dev", message="take it")
        assert merged.parent_ids == (main.commit_id, made.commit.commit_id)

        found = [each async for each in tarn.list_objects("lake", "main", delimiter="/")]
        assert found == [CommonPrefix("raw/"), await tarn.get_object("lake", "main", "top")]
        assert [each.path async for each in tarn.diff_refs("lake", "main", "main~1")] == [
            "raw/a",
            "raw/b",
            "top",
        ]
        history = [each async for each in tarn.list_commits("lake", "main")]
        assert [each.message for each in history[:2]] == ["take it", "load"]
        assert (await tarn.create_tag("lake", "v1", "main")).commit_id == merged.commit_id
        assert [each.tag_id async for each in tarn.list_tags("lake")] == ["v1"]

        undone = await tarn.revert("lake", "main", "main", parent_number=1)
        assert [each async for each in tarn.list_objects("lake", "main")] == []
        again = await tarn.cherry_pick("lake", "main", "dev")
        assert again.parent_ids == (undone.commit_id,)
        back = await tarn.move_branch("lake", "main", "v1", expected_commit_id=again.commit_id)
        assert back.commit_id == merged.commit_id
        await tarn.delete_tag("lake", "v1")
        await tarn.delete_branch("lake", "dev")
        assert (await tarn.get_caller()).user_id == "root"
        assert [each.repository_id async for each in tarn.list_repositories()] == ["lake"]


async def test_conflicts_are_listed_and_decided(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        await tarn.create_branch("lake", "dev", "main")
        for size, branch in ((1, "main"), (2, "dev")):
            for path in ("a", "b", "c"):
                await served.service.put(path, size, branch)
            await tarn.create_commit("lake", branch, "load")
        with pytest.raises(MergeConflictError) as raised:
            await tarn.merge("lake", "main", "dev")
        assert (raised.value.repository, raised.value.ref) == ("lake", "main")
        assert isinstance(raised.value, FailedPreconditionError)

        assert (await tarn.preview_merge("lake", "main", "dev")).conflict_count == 3
        undecided = tarn.list_conflicts(
            "lake", "main", "dev", choices=[("b", Side.SOURCE)], page_size=1
        )
        conflicts = [each async for each in undecided]
        assert [each.path for each in conflicts] == ["a", "c"]
        first = conflicts[0]
        assert (first.base, first.source and first.source.size_bytes) == (None, 2)
        await tarn.merge(
            "lake",
            "main",
            "dev",
            choices=[("b", Side.SOURCE)],
            default_side=Side.DESTINATION,
        )
        sizes = [
            each.size_bytes
            async for each in tarn.list_objects("lake", "main")
            if isinstance(each, ObjectVersion)
        ]
        assert sizes == [1, 2, 1]


async def test_errors_have_a_class_and_say_what_they_are_about(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        with pytest.raises(BranchNotFoundError) as missing:
            await tarn.get_branch("lake", "nope")
        assert isinstance(missing.value, NotFoundError)
        assert (missing.value.kind, missing.value.reason) == (
            Kind.NOT_FOUND,
            Reason.BRANCH_NOT_FOUND,
        )
        assert (missing.value.repository, missing.value.ref) == ("lake", "nope")

        with pytest.raises(RefNotFoundError) as source:
            await tarn.create_branch("lake", "dev", "nowhere")
        assert source.value.ref == "nowhere"  # the server's word, not the request's first ref

        with pytest.raises(EntryNotFoundError) as entry:  # on the stream
            await tarn.get_object("lake", "main", "a/b")
        assert (entry.value.repository, entry.value.ref, entry.value.path) == (
            "lake",
            "main",
            "a/b",
        )
        await tarn.create_branch("lake", "dev", "main")
        await served.service.put("a", 1, "dev")
        await tarn.create_commit("lake", "dev", "load")
        await served.service.put("b", 1)
        with pytest.raises(BranchDirtyError):
            await tarn.merge("lake", "main", "dev")
        assert await tarn.delete_objects("lake", "main", ["b", "x" * 2000]) != {}
        with pytest.raises(EntryNotFoundError):
            await tarn.get_object("lake", "main", "b")


async def test_every_reason_and_kind_makes_an_error_of_both() -> None:
    from tarn.client import errors

    for kind in Kind:
        classes = vars(errors).values()
        of_kind = next(
            each for each in classes if getattr(each, "__dict__", {}).get("KIND") is kind
        )
        for reason in Reason:
            made = call_error(TarnError(kind, reason, "no", ref="main"), {"path": "a"})
            assert (made.kind, made.reason, made.ref, made.path) == (kind, reason, "main", "a")
            assert isinstance(made, of_kind)
            assert made.REASON is reason, f"add a class for {reason} to tarn.client.errors"


async def test_pages_are_read_as_they_are_needed(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        for name in "edcba":
            await tarn.create_branch("lake", name, "main")
        listing = tarn.list_branches("lake", page_size=2)
        assert isinstance(listing, Listing)
        assert (await anext(listing)).branch_id == "a"
        await tarn.delete_branch("lake", "c")  # of a page that is not read yet
        assert [each.branch_id async for each in listing] == ["b", "d", "e", "main"]
        assert await listing.next_page() is None
        pages = tarn.list_branches("lake", page_size=4)
        found = []
        while (page := await pages.next_page()) is not None:
            found.append([each.branch_id for each in page])
        assert found == [["a", "b", "d", "e"], ["main"]]


async def test_hidden_branches_are_listed_on_demand(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        await tarn.create_branch("lake", "tmp", "main")
        etag = (await tarn.graveler.get_settings(tarn.call(), "lake")).etag
        await tarn.graveler.set_rules(
            tarn.call(), "lake", protections=[], hidden_patterns=["t*"], if_match=etag
        )
        listed = [each.branch_id async for each in tarn.list_branches("lake")]
        everything = tarn.list_branches("lake", include_hidden=True, page_size=1)
        assert (listed, [each.branch_id async for each in everything]) == (
            ["main"],
            ["main", "tmp"],
        )


async def test_concurrent_calls_log_in_once(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(tarn.get_branch("lake", "main"))
        assert served.sessions.count == 1


async def test_an_expired_token_is_renewed_and_the_call_sent_again(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served:
        # The client cannot know that its token has expired: its clock did not move.
        clock = ServiceClock(served.service.clock, moves=False)
        async with served.client(clock=clock) as tarn:
            await tarn.get_branch("lake", "main")
            served.service.clock.advance(2 * 3600.0)
            async with asyncio.TaskGroup() as group:
                for _ in range(10):
                    group.create_task(tarn.get_branch("lake", "main"))
            assert served.sessions.count == 2
            served.service.clock.advance(2 * 3600.0)
            await tarn.create_branch("lake", "dev", "main")
            assert served.sessions.count == 3
            served.service.clock.advance(2 * 3600.0)
            await tarn.delete_object("lake", "dev", "a")  # on the stream
            assert served.sessions.count == 4


async def test_a_token_is_renewed_before_it_expires(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        first = await tarn.log_in()
        served.service.clock.advance(600.0)
        assert await tarn.log_in() == first
        served.service.clock.advance(2700.0)
        await tarn.get_branch("lake", "main")
        assert served.sessions.count == 2
        assert await tarn.log_in() != first


async def test_a_refused_key_pair_is_not_tried_again(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served:
        async with served.client(secret_access_key="wrong" * 8) as tarn:
            with pytest.raises(SignatureMismatchError) as raised:
                await tarn.create_branch("lake", "dev", "main")
            assert isinstance(raised.value, UnauthenticatedError)
            assert served.sessions.count == 1

            async def busy() -> None:
                await asyncio.sleep(0.05)

            served.sessions.before = busy
            async with asyncio.TaskGroup() as group:
                for _ in range(10):
                    group.create_task(refused(tarn))
            assert served.sessions.count == 2
        async with AsyncClient(served.address) as stranger:
            with pytest.raises(UnauthenticatedError):
                await stranger.get_branch("lake", "main")
            with pytest.raises(CredentialNotFoundError):
                await stranger.log_in()


async def refused(tarn: AsyncClient) -> None:
    with pytest.raises(SignatureMismatchError):
        await tarn.get_branch("lake", "main")


async def test_a_closed_client_makes_no_calls(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served:
        async with served.client() as tarn:
            await tarn.get_branch("lake", "main")
        with pytest.raises(UnavailableError, match="closed"):
            await tarn.get_branch("lake", "main")


async def test_a_log_in_whose_answer_is_lost_is_made_again_with_a_new_proof(
    tmp_path: Path,
) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:

        async def lose() -> None:
            if served.sessions.count < 3:
                raise TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, "lost")

        served.sessions.before = lose
        await tarn.get_branch("lake", "main")
        assert served.sessions.count == len(set(served.sessions.nonces)) == 3


async def test_tls_of_the_server_is_checked(tmp_path: Path) -> None:
    for folder in ("ours", "theirs"):
        (tmp_path / folder).mkdir()
    ours = Authority(tmp_path / "ours").issue("service")
    theirs = Authority(tmp_path / "theirs").issue("stranger")
    async with served_service(tmp_path, ours) as served:
        async with served.client(tls=ours) as tarn:
            assert (await tarn.get_branch("lake", "main")).branch_id == "main"
        async with served.client(tls=theirs, timeout_s=0.5) as stranger:
            with pytest.raises(UnavailableError):
                await stranger.get_branch("lake", "main")


async def test_the_blocking_client_does_the_same(tmp_path: Path) -> None:
    def work(address: str, options: dict[str, object]) -> list[str]:
        with Client(address, **options) as tarn:  # type: ignore[arg-type]
            tarn.create_branch("lake", "dev", "main")
            with pytest.raises(BranchNotFoundError):
                tarn.get_branch("lake", "nope")
            with pytest.raises(TarnCallError):
                tarn.with_timeout(1e-9).get_branch("lake", "main")
            made = tarn.create_commit("lake", "main", "load")
            assert made.commit == tarn.get_commit("lake", "main")
            count = tarn.run(
                lambda client: client.graveler.get_branch(client.call(), "lake", "dev")
            )
            assert count.branch_id == "dev"
            names = [each.branch_id for each in tarn.list_branches("lake", page_size=1)]
        with pytest.raises(RuntimeError, match="closed"):
            tarn.get_branch("lake", "main")
        tarn.close()
        return names

    async with served_service(tmp_path) as served:
        await served.service.put("a", 1)
        assert await asyncio.to_thread(work, served.address, served.options()) == ["dev", "main"]
    assert not [each for each in threading.enumerate() if each.name == "tarn"]


async def test_a_blocking_listing_goes_on_after_an_error(tmp_path: Path) -> None:
    """An error must not look like the end."""

    async def refuse() -> None:
        raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, "too many log-ins")

    async with served_service(tmp_path) as served:
        with Client(served.address, **served.options()) as tarn:
            await asyncio.to_thread(tarn.create_branch, "lake", "dev", "main")
            items = tarn.list_branches("lake", page_size=1)
            assert (await asyncio.to_thread(next, items)).branch_id == "dev"
            served.sessions.before = refuse
            served.service.clock.advance(2 * 3600.0)
            with pytest.raises(OverloadedError):
                await asyncio.to_thread(next, items)
            served.sessions.before = None
            rest = await asyncio.to_thread(list, items)
            assert [each.branch_id for each in rest] == ["main"]
            await asyncio.to_thread(tarn.close)


async def test_the_blocking_client_has_every_operation() -> None:
    operations = {
        name
        for name in dir(Operations)
        if not name.startswith("_") and callable(getattr(Operations, name))
    } - {"call"}
    assert operations <= set(dir(Client))
    assert inspect.signature(Client) == inspect.signature(AsyncClient)
    for name in operations:
        method, original = getattr(Client, name), getattr(Operations, name)
        assert method.__wrapped__ is original, name
        assert method.__doc__ == original.__doc__
        is_listing = not inspect.iscoroutinefunction(original)
        assert type(method).__name__ == ("BlockingListing" if is_listing else "Blocking")


def types_of_the_blocking_client(tarn: Client) -> None:
    """Checked by mypy: arguments and results are those of the asynchronous methods."""
    assert_type(tarn.create_branch("lake", "dev", "main"), Branch)
    assert_type(tarn.list_branches("lake"), Iterator[Branch])
    tarn.create_branch("lake")  # type: ignore[call-arg]


async def test_half_a_key_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="together"):
        AsyncClient("127.0.0.1:1", access_key_id="a")
    with pytest.raises(ValueError, match="address"):
        AsyncClient([])
    with pytest.raises(ValueError, match="together"):
        AsyncClient("127.0.0.1:1", tls=TlsFiles(certificate=Path("a")))

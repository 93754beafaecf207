"""`tarn.client` as a library, over gRPC and the real services: reflogs, history, counts, resets and rules."""

from __future__ import annotations

import asyncio
import itertools
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from served_service import ServedService, served_service

from tarn.client import (
    AsyncClient,
    ChangeKind,
    Client,
    Commit,
    HeadOperation,
    PathChange,
    Protection,
    Side,
)
from tarn.client.errors import (
    BranchExistsError,
    BranchNotFoundError,
    BranchProtectedError,
    MergeConflictError,
    RefMovedError,
    RepositoryReadOnlyError,
    SettingsChangedError,
    TarnCallError,
)
from tarn.client.values import HeadChange, RepositorySettings
from tarn.core.errors import TarnError
from tarn_proto.graveler.v1 import reflog_service_pb2, settings_service_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def _load(served: ServedService, tarn: AsyncClient, branch: str, *paths: str) -> Commit:
    """Commits objects whose sizes are the lengths of their paths."""
    for path in paths:
        await served.service.put(path, len(path), branch)
    return (await tarn.create_commit("lake", branch, f"load {' '.join(paths)}")).commit


async def test_the_reflog_tells_each_head_and_restores_a_deleted_branch(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        first = await tarn.get_commit("lake", "main")
        await tarn.create_branch("lake", "dev", "main")
        second = await _load(served, tarn, "dev", "a")
        third = await tarn.revert("lake", "dev", "dev")
        found = [each async for each in tarn.list_reflog("lake", "dev", page_size=1)]
        assert [each.operation for each in found] == [
            HeadOperation.REVERT,
            HeadOperation.COMMIT,
            HeadOperation.CREATE,
        ]
        assert [(each.old_commit_id, each.new_commit_id) for each in found] == [
            (second.commit_id, third.commit_id),
            (first.commit_id, second.commit_id),
            (None, first.commit_id),
        ]
        assert {each.user_id for each in found} == {"root"}
        assert all(new.time > old.time for new, old in itertools.pairwise(found))
        for place, change in enumerate(found[:2], 1):
            at = await tarn.get_commit("lake", f"dev@{{{place}}}")
            assert at.commit_id == change.old_commit_id

        await tarn.delete_branch("lake", "dev")
        await tarn.create_branch("lake", "tmp", "main")
        await tarn.delete_branch("lake", "tmp")
        deleted = [each async for each in tarn.list_deleted_branches("lake", page_size=1)]
        assert [(each.branch_id, each.commit_id, each.user_id) for each in deleted] == [
            ("dev", third.commit_id, "root"),
            ("tmp", first.commit_id, "root"),
        ]
        newest = await anext(tarn.list_reflog("lake", "dev"))
        assert (newest.operation, newest.new_commit_id) == (HeadOperation.DELETE, None)
        assert newest.time == deleted[0].delete_time
        some = tarn.list_deleted_branches("lake", prefix="t")
        assert [each.branch_id async for each in some] == ["tmp"]

        restored = await tarn.restore_branch("lake", "dev")
        assert (restored.branch_id, restored.commit_id) == ("dev", third.commit_id)
        assert restored == await tarn.get_branch("lake", "dev")
        with pytest.raises(BranchExistsError):
            await tarn.restore_branch("lake", "dev")
        with pytest.raises(BranchNotFoundError):
            await tarn.restore_branch("lake", "never")
        with pytest.raises(BranchNotFoundError):
            await anext(tarn.list_reflog("lake", "never"))


async def test_the_log_takes_ranges_times_users_and_paths(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        first = await tarn.get_commit("lake", "main")
        await tarn.create_branch("lake", "dev", "main")
        served.service.clock.advance(60.0)
        one = await _load(served, tarn, "main", "raw/a")
        served.service.clock.advance(60.0)
        two = await _load(served, tarn, "dev", "raw/b", "top")
        served.service.clock.advance(60.0)
        merged = await tarn.merge("lake", "main", "dev")

        async def log(ref: str = "main", **filters: object) -> list[str]:
            found = tarn.list_commits("lake", ref, page_size=1, **filters)  # type: ignore[arg-type]
            return [each.commit_id async for each in found]

        everything = [each.commit_id for each in (merged, two, one, first)]
        assert await log() == everything
        assert await log(first_parent=True) == [everything[0], *everything[2:]]
        assert await log("main", exclude_ref="dev") == [merged.commit_id, one.commit_id]
        assert await log("dev", exclude_ref="main") == []
        assert await log("dev", exclude_ref="main", symmetric=True) == [
            merged.commit_id,
            one.commit_id,
        ]
        assert await log(since=two.create_time) == everything[:2]
        assert await log(until=two.create_time) == everything[2:]
        zone = two.create_time.astimezone(timezone(timedelta(hours=5)))
        assert await log(since=zone, until=zone + timedelta(microseconds=1)) == [two.commit_id]
        assert await log(committer="root", until=one.create_time + timedelta(seconds=1))
        assert await log(committer="no-committer") == []
        assert await log(paths=["raw/a"]) == [one.commit_id]
        assert await log(paths=["top"], prefixes=["raw/"]) == [two.commit_id, one.commit_id]
        assert await log(prefixes=["t"]) == [two.commit_id]
        with pytest.raises(ValueError, match="no zone"):
            tarn.list_commits("lake", "main", since=datetime(2026, 1, 1))  # noqa: DTZ001

        lines = [each async for each in tarn.annotate("lake", "main", page_size=1)]
        assert [(each.path, each.commit_id, each.is_final) for each in lines] == [
            ("raw/a", one.commit_id, True),
            ("raw/b", two.commit_id, True),
            ("top", two.commit_id, True),
        ]
        assert (lines[0].committer, lines[0].subject) == ("root", one.message)
        assert lines[0].create_time == one.create_time
        some = tarn.annotate("lake", "main", prefix="raw/", after="raw/a")
        assert [each.path async for each in some] == ["raw/b"]


async def test_differences_are_counted_by_folder_and_listed_by_name(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        await _load(served, tarn, "main", "raw/a", "raw/b", "top")
        await tarn.create_branch("lake", "dev", "main")
        await _load(served, tarn, "main", "main-only")
        await served.service.put("raw/a", 100, "dev")
        await served.service.put("raw/c", 7, "dev")
        await tarn.delete_object("lake", "dev", "top")

        expected = [
            PathChange("raw/a", "changed"),
            PathChange("raw/c", "added"),
            PathChange("top", "removed"),
        ]
        names = tarn.diff_uncommitted_names("lake", "dev", page_size=1)
        assert [each async for each in names] == expected
        found = await tarn.summarize_uncommitted("lake", "dev", delimiter="/", page_size=1)
        assert list(found.folders) == ["raw/", "top"]
        raw = found.folders["raw/"]
        assert (raw.added_count, raw.changed_count, raw.removed_count) == (1, 1, 0)
        assert (raw.added_bytes, raw.removed_bytes) == (107, 5)
        assert (found.counts.added_count, found.counts.removed_count) == (1, 1)
        only_top = await tarn.summarize_uncommitted("lake", "dev", prefix="t")
        assert (only_top.counts.added_count, only_top.counts.removed_count) == (0, 1)
        assert only_top.folders == {}

        await tarn.create_commit("lake", "dev", "work")
        changes = tarn.diff_names("lake", "main", "dev", from_merge_base=True, page_size=2)
        assert [each async for each in changes] == expected
        two_dots = [each.path async for each in tarn.diff_names("lake", "main", "dev")]
        assert two_dots == ["main-only", "raw/a", "raw/c", "top"]
        three_dots = tarn.diff_refs("lake", "main", "dev", from_merge_base=True)
        assert [(each.path, each.kind) async for each in three_dots] == [
            (each.path, each.kind) for each in expected
        ]
        summary = await tarn.summarize_diff(
            "lake", "main", "dev", from_merge_base=True, delimiter="/", page_size=1
        )
        assert summary == found
        assert (await tarn.summarize_diff("lake", "main", "dev")).counts.removed_count == 2
        only = await tarn.summarize_diff("lake", "main", "dev", prefix="raw/", delimiter="/")
        assert list(only.folders) == ["raw/a", "raw/c"]


async def test_a_reset_discards_all_or_a_prefix_or_one_path(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        for path in ("raw/a", "raw/b", "rawer", "top", "x"):
            await served.service.put(path, 1)

        async def changed() -> list[str]:
            return [each.path async for each in tarn.diff_uncommitted_names("lake", "main")]

        await tarn.reset_branch("lake", "main", path="raw/a")
        assert await changed() == ["raw/b", "rawer", "top", "x"]
        await tarn.reset_branch("lake", "main", prefix="raw")
        assert await changed() == ["top", "x"]
        for wrong in ({"prefix": ""}, {"path": ""}):
            with pytest.raises(TarnCallError):  # never "all"
                await tarn.reset_branch("lake", "main", **wrong)
        with pytest.raises(ValueError, match="not both"):
            await tarn.reset_branch("lake", "main", prefix="t", path="x")
        assert await changed() == ["top", "x"]
        await tarn.reset_branch("lake", "main")
        assert await changed() == []


async def test_a_range_is_reverted_at_once(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        first = await _load(served, tarn, "main", "keep")
        second = await _load(served, tarn, "main", "a")
        third = await _load(served, tarn, "main", "b")
        undone = await tarn.revert_range(
            "lake", "main", "main~2", "main", message="bad loads", metadata={"ticket": "7"}
        )
        assert undone.reverted_commit_ids == (third.commit_id, second.commit_id)
        assert undone.commit == await tarn.get_commit("lake", "main")
        assert (undone.commit.message, undone.commit.metadata["ticket"]) == ("bad loads", "7")
        assert undone.commit.metarange_id == first.metarange_id
        assert (await tarn.get_commit("lake", "main~2")).commit_id == third.commit_id

        again = await tarn.revert_range("lake", "main", third.commit_id, "main", squash=True)
        assert again.commit.parent_ids == (undone.commit.commit_id,)
        assert again.commit.metarange_id == third.metarange_id
        with pytest.raises(ValueError, match="since_ref is empty"):
            await tarn.revert_range("lake", "main", "", "main")
        assert (await tarn.get_branch("lake", "main")).commit_id == again.commit.commit_id


async def test_a_branch_is_created_at_a_merge(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        await tarn.create_branch("lake", "dev", "main")
        for size, branch in ((1, "main"), (2, "dev")):
            await served.service.put("a", size, branch)
            await tarn.create_commit("lake", branch, "load")
        heads = [(await tarn.get_branch("lake", each)).commit_id for each in ("main", "dev")]
        with pytest.raises(MergeConflictError):
            await tarn.create_merge_branch("lake", "try", "main", "dev")
        made = await tarn.create_merge_branch(
            "lake", "try", "main", "dev", choices=[("a", Side.SOURCE)], message="what if"
        )
        assert (made.parent_ids, made.message) == (tuple(heads), "what if")
        assert (await tarn.get_branch("lake", "try")).commit_id == made.commit_id
        assert (await tarn.get_object("lake", "try", "a")).size_bytes == 2
        with pytest.raises(BranchExistsError):
            await tarn.create_merge_branch("lake", "try", "main", "dev", default_side=Side.SOURCE)
        assert [
            (await tarn.get_branch("lake", each)).commit_id for each in ("main", "dev")
        ] == heads
        merged = await tarn.merge("lake", "main", "dev", default_side=Side.SOURCE)
        assert merged.metarange_id == made.metarange_id


async def test_rules_are_read_and_set_with_if_match(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        before = await tarn.get_settings("lake")
        assert (before.protections, before.read_only, before.default_branch_id) == (
            (),
            False,
            "main",
        )
        rule = Protection("ma?n", frozenset({ChangeKind.COMMIT, ChangeKind.FORCE}), ("root",))
        strict = Protection("dev", frozenset({ChangeKind.DELETE}), exempt_roles=("Analyst",))
        etag = await tarn.set_rules(
            "lake", protections=[rule, strict], hidden_patterns=["tmp-*"], if_match=before.etag
        )
        now = await tarn.get_settings("lake")
        assert (now.protections, now.hidden_patterns, now.etag) == (
            (rule, strict),
            ("tmp-*",),
            etag,
        )
        for outdated in (before.etag, ""):
            with pytest.raises(TarnCallError) as raised:
                await tarn.set_rules("lake", protections=[], hidden_patterns=[], if_match=outdated)
            assert isinstance(raised.value, SettingsChangedError) == bool(outdated)
        await tarn.create_branch("lake", "dev", "main")
        with pytest.raises(BranchProtectedError):
            await tarn.delete_branch("lake", "dev")
        with pytest.raises(ValueError, match="cannot block other"):
            Protection("a", frozenset({ChangeKind.OTHER})).message()

        etag = await tarn.set_metadata("lake", {"owner": "sales"}, if_match=etag)
        assert (await tarn.get_settings("lake")).metadata == {"owner": "sales"}
        assert await tarn.set_default_branch("lake", "dev", expected_branch_id="main") == "main"
        with pytest.raises(SettingsChangedError):
            await tarn.set_default_branch("lake", "main", expected_branch_id="main")
        with pytest.raises(ValueError, match="leave it out"):
            await tarn.set_default_branch("lake", "main", expected_branch_id="")
        assert (await tarn.get_settings("lake")).default_branch_id == "dev"

        with pytest.raises(SettingsChangedError):
            await tarn.set_read_only("lake", True, if_match=before.etag)
        with pytest.raises(ValueError, match="leave it out"):
            await tarn.set_read_only("lake", True, if_match="")
        etag = await tarn.set_read_only("lake", True, if_match=etag)
        with pytest.raises(RepositoryReadOnlyError):
            await tarn.create_tag("lake", "v1", "main")
        after = await tarn.get_settings("lake")
        assert (after.read_only, after.etag, after.protections) == (True, etag, now.protections)
        await tarn.set_read_only("lake", False)
        await tarn.create_tag("lake", "v1", "main")


async def test_uncommitted_counts_do_not_mix_two_heads(tmp_path: Path) -> None:
    """The pages of one summary are about one head; the blocking client reports the same error."""

    def work(address: str, options: dict[str, object]) -> None:
        with Client(address, **options) as tarn:  # type: ignore[arg-type]
            names = tarn.diff_uncommitted_names("lake", "main", page_size=1)
            assert next(names) == PathChange("a", "added")
            tarn.create_commit("lake", "main", "load")
            with pytest.raises(RefMovedError):
                next(names)
            assert [each.path for each in tarn.annotate("lake", "main")] == ["a", "b"]
            assert tarn.get_settings("lake").default_branch_id == "main"

    async with served_service(tmp_path) as served:
        for path in ("a", "b"):
            await served.service.put(path, 1)
        await asyncio.to_thread(work, served.address, served.options())


async def test_one_text_is_not_taken_for_several(tmp_path: Path) -> None:
    """A text is a sequence of texts, so its characters would become patterns or paths."""
    async with served_service(tmp_path) as served, served.client() as tarn:
        etag = (await tarn.get_settings("lake")).etag
        with pytest.raises(
            TypeError, match=r"hidden_patterns takes several texts, such as \['\*'\]"
        ):
            await tarn.set_rules("lake", protections=[], hidden_patterns="*", if_match=etag)
        for wrong in ({"exempt_user_ids": "root"}, {"exempt_roles": "Admin"}):
            rule = Protection("main", frozenset({ChangeKind.WRITE}), **wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="takes several texts"):
                await tarn.set_rules("lake", protections=[rule], hidden_patterns=[], if_match=etag)
        for name in ("paths", "prefixes"):
            with pytest.raises(TypeError, match=name):
                tarn.list_commits("lake", "main", **{name: "raw/"})  # type: ignore[arg-type]
        assert (await tarn.get_settings("lake")).etag == etag
        east = timezone(timedelta(hours=5))
        with pytest.raises(ValueError, match="years 1 to 9999"):
            tarn.list_commits("lake", "main", since=datetime(1, 1, 1, tzinfo=east))


async def test_what_a_newer_server_sends_is_never_misread() -> None:
    """A protection with an unknown kind is refused, because setting the rules again would weaken it."""
    newer = settings_service_pb2.Protection(pattern="main")
    newer.MergeFromString(b"\x12\x02\x02\x63")  # blocked: COMMIT and 99
    assert list(newer.blocked) == [2, 99]
    with pytest.raises(TarnError, match=r"kinds \[99\] of the protection 'main'"):
        RepositorySettings.of(settings_service_pb2.GetSettingsResponse(protections=[newer]))
    change = reflog_service_pb2.HeadChange()
    change.MergeFromString(b"\x10\x63")
    assert HeadChange.of(change).operation is HeadOperation.UNKNOWN

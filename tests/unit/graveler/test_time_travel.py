"""Refs with a moment: `main@{2}`, `main@{1 day ago}`, `main@{2026-11-01}` (docs/design/reflog.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from lake import MAIN, Lake, keep_tokens
from lake_merges import head

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId, TagId
from tarn.core.moments import iso_time
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Group
from tarn.kv.records import decode_head_change, encode_branch
from tarn_graveler.records.reflog_rows import ReflogLimits, ReflogRows

DEV = BranchId("dev")
DAY = 86_400


@dataclass(frozen=True)
class Past:
    """Commits of `main`, an hour apart, and the times at which they were made; the creation comes first."""

    heads: list[CommitId]
    times: list[int]


async def commit_of(lake: Lake, ref: str) -> CommitId:
    return await lake.graveler.refs.commit_of(lake.repository, ref)


async def refusal(lake: Lake, ref: str) -> tuple[Kind, Reason, str]:
    with pytest.raises(TarnError) as caught:
        await commit_of(lake, ref)
    return caught.value.kind, caught.value.reason, caught.value.message


async def not_found(lake: Lake, ref: str) -> str:
    kind, reason, message = await refusal(lake, ref)
    assert (kind, reason) == (Kind.NOT_FOUND, Reason.REF_NOT_FOUND)
    assert ref in message
    return message


@pytest.fixture
async def past(lake: Lake) -> Past:
    heads, times = [await head(lake)], []
    for number in range(4):
        lake.clock.advance(3600)
        await lake.put("a", number)
        heads.append((await lake.commit(f"commit {number}")).commit_id)
    found = await lake.graveler.reflog.page(lake.repository, MAIN, "", 10)
    times = [entry.time_us for entry in reversed(found.entries)]
    lake.clock.advance(1800)
    return Past(heads, times)


async def test_a_number_after_the_branch_counts_its_changes_back(lake: Lake, past: Past) -> None:
    for back in range(5):
        assert await commit_of(lake, f"main@{{{back}}}") == past.heads[4 - back]
    assert "did not exist before" in await not_found(lake, "main@{5}")
    assert "has 5 entries" in await not_found(lake, "main@{6}")
    assert "has 5 entries" in await not_found(lake, "main@{999999}")


async def test_a_time_names_the_head_at_that_time(lake: Lake, past: Past) -> None:
    for number, time_us in enumerate(past.times):
        assert await commit_of(lake, f"main@{{{iso_time(time_us)}}}") == past.heads[number]
        if number:
            before = f"main@{{{iso_time(time_us - 1)}}}"
            assert await commit_of(lake, before) == past.heads[number - 1]
    early = await not_found(lake, f"main@{{{iso_time(past.times[0] - 1)}}}")
    assert "was created at" in early


async def test_an_age_is_counted_from_now(lake: Lake, past: Past) -> None:
    assert await commit_of(lake, "main@{0 seconds ago}") == past.heads[4]
    assert await commit_of(lake, "main@{29 minutes ago}") == past.heads[4]
    assert await commit_of(lake, "main@{31.minutes.ago}") == past.heads[3]
    assert await commit_of(lake, "main@{1 hour ago}") == past.heads[3]
    assert await commit_of(lake, "main@{4 hours ago}") == past.heads[0]
    await not_found(lake, "main@{1 week ago}")


async def test_tilde_and_caret_apply_to_a_past_head(lake: Lake, past: Past) -> None:
    assert await commit_of(lake, "main@{1}~1") == past.heads[2]
    assert await commit_of(lake, "main@{1}^1~1^0") == past.heads[1]
    assert await lake.get("a", "main@{2}") == 1
    await lake.put("a", 99)
    assert await lake.get("a", "main@{0}") == 3, "committed only"
    assert await lake.get("a") == 99


async def test_a_time_in_the_future_is_refused_beyond_the_clock_skew(
    lake: Lake, past: Past
) -> None:
    soon = lake.clock.now_us() + 5_000_000
    assert await commit_of(lake, f"main@{{{iso_time(soon)}}}") == past.heads[4]
    kind, reason, message = await refusal(lake, f"main@{{{iso_time(soon + 1)}}}")
    assert (kind, reason) == (Kind.INVALID, Reason.INVALID_ARGUMENT)
    assert "in the future" in message


async def test_a_commit_by_a_replica_with_a_fast_clock_is_in_order(lake: Lake) -> None:
    lake.clock.advance(4)
    await lake.put("a", 1)
    first = (await lake.commit()).commit_id
    lake.clock.advance(-4)
    await lake.put("a", 2)
    second = (await lake.commit()).commit_id
    found = (await lake.graveler.reflog.page(lake.repository, MAIN, "", 2)).entries
    assert found[0].time_us == found[1].time_us + 1, "not the same time, and not earlier"
    lake.clock.advance(4)
    assert await commit_of(lake, f"main@{{{iso_time(found[1].time_us)}}}") == first
    assert await commit_of(lake, f"main@{{{iso_time(found[0].time_us)}}}") == second


async def test_a_reflog_reaches_across_the_deletion_of_its_branch(lake: Lake, past: Past) -> None:
    await lake.graveler.branches.delete(lake.main, keep_tokens)
    assert "was deleted at" in await not_found(lake, "main@{0}")
    assert "was deleted at" in await not_found(lake, "main@{0 seconds ago}")
    await not_found(lake, "main")
    assert await commit_of(lake, "main@{1}") == past.heads[4]
    assert await commit_of(lake, "main@{2}") == past.heads[3]
    assert await commit_of(lake, "main@{1 hour ago}") == past.heads[3]
    assert await lake.get("a", "main@{1}") == 3
    lake.clock.advance(3600)
    await lake.graveler.branches.create(lake.main, past.heads[1])
    assert await commit_of(lake, "main@{0}") == past.heads[1]
    assert "did not exist before" in await not_found(lake, "main@{1}")
    assert await commit_of(lake, "main@{2}") == past.heads[4]
    assert await commit_of(lake, "main@{2 hours ago}") == past.heads[3]
    assert "was deleted at" in await not_found(lake, "main@{30 minutes ago}")


async def test_the_base_of_a_moment_is_a_branch_and_nothing_else(lake: Lake, past: Past) -> None:
    commit_id = past.heads[2]
    await lake.graveler.tags.create(lake.repository, TagId("v1"), commit_id)
    for ref in ("v1@{0}", "v1@{1}", "v1@{1 hour ago}"):
        assert "v1 is a tag" in await not_found(lake, ref)
    assert "is not a branch" in await not_found(lake, f"{commit_id[:12]}@{{0}}")
    kind, _, message = await refusal(lake, f"{commit_id}@{{0}}")
    assert kind is Kind.INVALID
    assert "commit id" in message
    twin = BranchId(commit_id[:12])
    await lake.graveler.branches.create(lake.branch(twin), past.heads[1])
    assert await commit_of(lake, twin) == past.heads[1], "a branch wins over a prefix"
    assert await commit_of(lake, f"{twin}@{{0}}") == past.heads[1]


async def test_the_head_of_a_branch_that_has_not_changed_for_long_is_known(
    lake: Lake, past: Past
) -> None:
    """All of its entries are expired, also those of the changes before."""
    lake.clock.advance(200 * DAY)
    assert (await lake.graveler.reflog.page(lake.repository, MAIN, "", 10)).entries == []
    assert await commit_of(lake, "main@{100 days ago}") == past.heads[4]
    assert "has 0 entries" in await not_found(lake, "main@{1}")
    assert "no entry" in await not_found(lake, "main@{201 days ago}")
    await lake.put("a", 9)
    await lake.commit()
    assert await commit_of(lake, "main@{1 hour ago}") == past.heads[4]
    assert await commit_of(lake, "main@{100 days ago}") == past.heads[4]
    assert "begins at" in await not_found(lake, "main@{201 days ago}")


async def test_what_a_branch_was_before_its_first_entry_is_not_guessed(lake: Lake) -> None:
    """A branch of an older version of Tarn has no entries of its earlier changes."""
    refs = lake.graveler.repositories.keys_of(lake.repository).refs
    version = await lake.graveler.branches.fresh(lake.main)
    old = replace(version.branch, outbox=(), head_sequence=0, head_time_us=0)
    await lake.kv.set_if(refs, RepositoryKeys.branch(MAIN), encode_branch(old), version.predicate)
    assert await commit_of(lake, "main@{0}") == old.commit_id
    lake.clock.advance(60)
    assert "no entry" in await not_found(lake, "main@{30 seconds ago}")
    await lake.put("a", 1)
    await lake.commit()
    assert await commit_of(lake, "main@{1}") == old.commit_id
    assert "begins at" in await not_found(lake, "main@{30 seconds ago}")


async def test_a_moment_is_resolved_once_for_many_requests(lake: Lake, past: Past) -> None:
    """Each request of a job that reads many paths at one moment resolves it; the reflog may be long."""
    begin, middle = past.times[0], past.times[2]
    refs = {
        "main@{3}": past.heads[1],
        f"main@{{{iso_time(middle)}}}": past.heads[2],
        "main@{4 hours ago}": past.heads[0],
    }
    missing = [f"main@{{{iso_time(begin - 1)}}}", "main@{5}", "main@{6}", "main@{999999}"]

    def scans() -> int:
        return sum(1 for each in lake.kv.calls if each[0] == "scan")

    for ref, expected in refs.items():
        assert await commit_of(lake, ref) == expected
    for ref in missing:
        await not_found(lake, ref)
    before = scans()
    assert before
    for _ in range(3):
        lake.clock.advance(0.1)
        for ref, expected in refs.items():
            assert await commit_of(lake, ref) == expected
        assert await commit_of(lake, f"main@{{{iso_time(middle + 1)}}}") == past.heads[2]
        for ref in missing:
            await not_found(lake, ref)
    assert scans() == before

    await lake.put("a", 9)
    await lake.commit()
    assert await commit_of(lake, "main@{3}") == past.heads[2], "counted from the new head"
    assert await commit_of(lake, f"main@{{{iso_time(middle)}}}") == past.heads[2]
    await lake.graveler.branches.delete(lake.main, keep_tokens)
    await lake.graveler.branches.create(lake.main, past.heads[1])
    assert await commit_of(lake, "main@{0}") == past.heads[1]
    assert "did not exist before" in await not_found(lake, "main@{1}")
    assert await commit_of(lake, "main@{3}") == past.heads[4]


# ---- expiry


@pytest.fixture
async def rows(lake: Lake) -> ReflogRows:
    """The rows, with a limit of ten entries and ten days."""
    limits = ReflogLimits(10 * DAY * 1_000_000, 10)
    lake.graveler.branches._reflog.limits = limits
    lake.graveler.cleaner._reflog.limits = limits
    return lake.graveler.branches._reflog


async def stored(lake: Lake) -> list[str]:
    keys = lake.graveler.repositories.keys_of(lake.repository)
    found = await lake.kv.scan(keys.reflog, b"", None, 1000)
    return [f"{key.decode()[:3]} {decode_head_change(value).sequence}" for key, value in found]


async def clean(lake: Lake, days: float) -> None:
    lake.clock.advance(days * DAY)
    await lake.graveler.cleaner.drop_due()


@pytest.mark.usefixtures("rows")
async def test_entries_expire_by_their_age(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.commit()
    await clean(lake, 5)
    await lake.put("a", 2)
    await lake.commit()
    assert await stored(lake) == ["log 2", "log 1"]
    await clean(lake, 5.5)
    assert await stored(lake) == ["log 2", "log 1"], "expired, and removed at the end of the day"
    await clean(lake, 1)
    assert await stored(lake) == []
    found = (await lake.graveler.reflog.page(lake.repository, MAIN, "", 10)).entries
    assert [each.sequence for each in found] == [3]
    await lake.put("a", 3)
    await lake.commit()
    for _ in range(12):
        await clean(lake, 1)
    assert await stored(lake) == []
    assert (await lake.graveler.reflog.page(lake.repository, MAIN, "", 10)).entries == []
    await lake.put("a", 4)
    await lake.commit()
    found = (await lake.graveler.reflog.page(lake.repository, MAIN, "", 10)).entries
    assert [each.sequence for each in found] == [5], "and it goes on"


async def test_entries_that_are_kept_for_longer_than_before_expire_later(
    lake: Lake, rows: ReflogRows
) -> None:
    """The cleaner looks when they would have expired, and must look again."""
    await lake.put("a", 1)
    await lake.commit()
    await lake.graveler.branches.delete(lake.main, keep_tokens)
    rows.limits = ReflogLimits(20 * DAY * 1_000_000, 10)
    for _ in range(12):
        await clean(lake, 1)
    assert await stored(lake) == ["del 3", "log 3", "log 2", "log 1"]
    for _ in range(10):
        await clean(lake, 1)
    assert await stored(lake) == []


@pytest.mark.usefixtures("rows")
async def test_a_damaged_row_does_not_stop_the_cleaner(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.commit()
    await lake.put("a", 2)
    await lake.commit()
    token = (await lake.staging_rows()).name
    keys = lake.graveler.repositories.keys_of(lake.repository)
    row = keys.reflog_rows(MAIN) + b"0"
    await lake.kv.set_many(keys.reflog, [Group(row, ((row, b"\x08"),))])
    await clean(lake, 12)
    await lake.put("a", 3)
    await lake.commit()
    await lake.drop_everything_removed()
    assert ("drop_partition", token) in lake.kv.calls, "what came later in the list"


@pytest.mark.usefixtures("rows")
async def test_the_number_of_entries_is_bounded(lake: Lake) -> None:
    for number in range(140):
        await lake.put("a", number)
        await lake.commit()
        if number % 10 == 0:
            await clean(lake, 0.0001)
    found = (await lake.graveler.reflog.page(lake.repository, MAIN, "", 1000)).entries
    assert [each.sequence for each in found] == list(range(141, 131, -1))
    assert len(await stored(lake)) <= 10 + 64 + 10
    assert "has 10 entries" in await not_found(lake, "main@{11}")


@pytest.mark.usefixtures("rows")
async def test_a_deleted_branch_is_listed_until_its_reflog_expires(lake: Lake) -> None:
    reflog, repository = lake.graveler.reflog, lake.repository
    await lake.graveler.branches.create(lake.branch(DEV), await head(lake))
    assert await reflog.deleted(repository, "", "", 10) == ([], "")
    await lake.graveler.branches.delete(lake.branch(DEV), keep_tokens)
    (found,), token = await reflog.deleted(repository, "", "", 10)
    assert (found.branch_id, found.deletion.old_commit_id, token) == (DEV, await head(lake), "")
    assert await reflog.deletion(repository, DEV) == found.deletion
    await clean(lake, 9.9)
    assert await reflog.deletion(repository, DEV) is not None
    lake.clock.advance(0.2 * DAY)
    assert await reflog.deleted(repository, "", "", 10) == ([], "")
    assert await reflog.deletion(repository, DEV) is None
    for _ in range(2):
        await clean(lake, 1)
    assert [each for each in await stored(lake) if each.startswith("del")] == []


async def test_deleted_branches_are_listed_in_pages(lake: Lake) -> None:
    reflog, repository = lake.graveler.reflog, lake.repository
    names = ["dev", "dev-1", "dev.x", "dev0", "devel", "other"]
    for name in [*names, "dev", "dev", "back"]:
        branch = lake.branch(BranchId(name))
        await lake.graveler.branches.create(branch, await head(lake))
        await lake.graveler.branches.delete(branch, keep_tokens)
    await lake.graveler.branches.create(lake.branch(BranchId("back")), await head(lake))
    for limit in (1, 2, 3, 100):
        seen: list[str] = []
        after = ""
        while True:
            page, after = await reflog.deleted(repository, "", after, limit)
            seen += [each.branch_id for each in page]
            if not after:
                break
        assert sorted(seen) == names, limit
    page, _ = await reflog.deleted(repository, "dev", "", 100)
    assert sorted(each.branch_id for each in page) == names[:5]

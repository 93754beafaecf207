"""Retention over the real graveler: commits expire, their objects go, and nothing else does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from collector_lab import NO_LIMITS, CollectorLab, collector_lab
from expiring_lab import commit, forget_reflog, set_rules
from google.protobuf.timestamp_pb2 import Timestamp
from graveler_service import reason_of

from tarn.block.port import BlockKey
from tarn.collection.expiring import published_commits
from tarn.collection.expiry_preview import preview_expiry
from tarn.collection.progress import CollectionProgress
from tarn.core.commit import commit_id_of, from_json
from tarn.core.errors import Reason, TarnError
from tarn.core.retention import parse_retention
from tarn_graveler.records.expired import READ_CACHE_SECONDS

RULES = '{"branches": [{"match": "*", "keep_commits": 2}], "detached": {"keep_days": 5}}'


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[CollectorLab]:
    async with collector_lab(tmp_path) as lab:
        yield lab


async def test_without_rules_nothing_expires(lab: CollectorLab) -> None:
    made = [await commit(lab, "main", "a") for _ in range(4)]
    await forget_reflog(lab)
    await lab.pass_days(400)
    await lab.collect()
    assert {block for _, block in made} <= await lab.blocks()
    assert (await lab.collector.record("lake")).last_mark.note == ""


async def test_objects_of_expired_commits_go_and_all_else_stays(lab: CollectorLab) -> None:
    graveler = lab.service.graveler
    made = [await commit(lab, "main", "a") for _ in range(4)]
    shared = await lab.put("main", "b")
    made.append(await commit(lab, "main", "a"))
    made += [await commit(lab, "main", "a") for _ in range(2)]
    await graveler.create_tag(lab.admin, "lake", "v1", made[1][0])
    await graveler.create_branch(lab.admin, "lake", "dev", "main")
    gone = await commit(lab, "dev", "a")
    await graveler.delete_branch(lab.admin, "lake", "dev")
    await forget_reflog(lab)
    metadata = await lab.blocks("_tarn/ranges/") | await lab.blocks("_tarn/metaranges/")
    await set_rules(lab, RULES)
    await lab.pass_days(6)
    await lab.collector.mark("lake")
    assert (await lab.collector.record("lake")).last_mark.note.endswith("commits expired")
    await lab.pass_days(1)
    report = await lab.collector.sweep("lake", NO_LIMITS)
    assert not report.missing
    blocks = await lab.blocks()
    lost = {made[number][1] for number in (0, 2, 3, 4)} | {gone[1]}
    assert not lost & blocks
    assert {made[1][1], made[5][1], made[6][1], shared} <= blocks, "a tag and two commits"
    assert metadata <= await lab.blocks("_tarn/"), "listings of expired commits stay"
    assert await lab.readable("main") == {"a": made[6][1], "b": shared}
    assert await lab.readable("v1") == {"a": made[1][1]}
    for ref in (made[0][0], "main~3", gone[0]):
        assert await reason_of(lab.readable(ref)) is Reason.EXPIRED_COMMIT
    log = await graveler.list_commits(lab.admin, "lake", "main")
    assert len(log.commits) == 8, "the log is whole, and marks what expired"
    marks = {each.commit_id: each.expired_by for each in log.commits}
    assert marks[made[0][0]] == "branches *: keep_commits 2"
    assert not marks[made[1][0]], "a tag names it"
    shown = await graveler.get_commit(lab.admin, "lake", made[0][0])
    assert shown.expired_by == "branches *: keep_commits 2"
    # Once expired, always expired; and a second run has nothing to do.
    await set_rules(lab, "")
    await lab.collect()
    assert await lab.blocks() == blocks
    assert await reason_of(lab.readable(made[0][0])) is Reason.EXPIRED_COMMIT


async def test_old_tags_go_and_their_commits_one_mark_later(lab: CollectorLab) -> None:
    graveler = lab.service.graveler
    made = [await commit(lab, "main", "a") for _ in range(5)]
    for name, (commit_id, _) in {"old": made[0], "kept": made[1], "again": made[0]}.items():
        await graveler.create_tag(lab.admin, "lake", name, commit_id)
    await forget_reflog(lab)
    await set_rules(
        lab,
        '{"branches": [{"match": "*", "keep_commits": 2}], "tags": [{"match": "*", "keep_days": 3}, '
        '{"match": "kept", "keep_days": 400}]}',
    )
    shown = await graveler.get_tag(lab.admin, "lake", "old")
    assert shown.expire_rule == "tags *: keep_days 3"
    assert shown.expire_time.seconds - shown.create_time.seconds == 3 * 86_400
    listed = (await graveler.list_tags(lab.admin, "lake")).tags
    days = [each.expire_time.seconds - each.create_time.seconds for each in listed]
    assert [each // 86_400 for each in days] == [3, 400, 3]
    await lab.pass_days(2)
    await lab.collector.mark("lake")
    assert [each.tag_id for each in (await graveler.list_tags(lab.admin, "lake")).tags] == [
        *("again", "kept", "old")
    ], "they are too young"
    await lab.pass_days(2)
    arguments = (lab.collector.client, lambda: lab.admin, "lake", lab.collector.blocks)
    now_us = lab.service.clock.now_us()
    found = await preview_expiry(*arguments, now_us, CollectionProgress())
    assert found.tags == dict.fromkeys(("again", "old"), "tags *: keep_days 3")
    await lab.collector.mark("lake", dry_run=True)
    assert len((await graveler.list_tags(lab.admin, "lake")).tags) == 3
    await lab.collector.mark("lake")
    assert (await lab.collector.record("lake")).last_mark.note == "2 tags expired"
    assert [each.tag_id for each in (await graveler.list_tags(lab.admin, "lake")).tags] == ["kept"]
    assert await lab.readable(made[0][0]) == {"a": made[0][1]}, "the commit stays for this mark"
    await graveler.create_tag(lab.admin, "lake", "again", made[0][0])
    await lab.collect()
    assert made[0][1] in await lab.blocks(), "a person wanted the tag, so its commit stays"
    await graveler.delete_tag(lab.admin, "lake", "again")
    await lab.collect()
    assert made[0][1] not in await lab.blocks()
    assert await lab.readable("kept") == {"a": made[1][1]}


async def test_a_commit_expires_by_its_own_time_and_not_by_that_of_its_author(
    lab: CollectorLab,
) -> None:
    graveler = lab.service.graveler
    block = await lab.put("main", "a")
    long_ago = Timestamp(seconds=1)
    made = await graveler.create_commit(lab.admin, "lake", "main", "m", author_time=long_ago)
    for _ in range(2):
        await commit(lab, "main", "a")
    await forget_reflog(lab)
    await set_rules(
        lab, '{"branches": [{"match": "*", "keep_days": 5}], "detached": {"keep_days": 5}}'
    )
    await lab.pass_days(3)
    await lab.collect()
    assert await lab.readable(made.commit.commit_id) == {"a": block}
    await lab.pass_days(3)
    await lab.collect()
    assert await reason_of(lab.readable(made.commit.commit_id)) is Reason.EXPIRED_COMMIT


async def test_reflogs_keep_their_commits(lab: CollectorLab) -> None:
    made = [await commit(lab, "main", "a") for _ in range(5)]
    await set_rules(lab, RULES)
    await lab.pass_days(6)
    await lab.collect()
    assert {block for _, block in made} <= await lab.blocks()
    assert await lab.readable("main@{3}") == {"a": made[1][1]}


async def test_a_dry_run_lets_nothing_expire(lab: CollectorLab) -> None:
    made = [await commit(lab, "main", "a") for _ in range(5)]
    await forget_reflog(lab)
    await set_rules(lab, RULES)
    await lab.pass_days(6)
    await lab.collector.mark("lake", dry_run=True)
    lab.service.clock.advance(READ_CACHE_SECONDS)
    assert await lab.readable(made[0][0]) == {"a": made[0][1]}


async def test_a_preview_tells_what_would_expire(lab: CollectorLab) -> None:
    made = [await commit(lab, "main", "a") for _ in range(5)]
    await forget_reflog(lab)
    await lab.pass_days(6)
    arguments = (lab.collector.client, lambda: lab.admin, "lake", lab.collector.blocks)
    now_us = lab.service.clock.now_us()
    assert not (await preview_expiry(*arguments, now_us, CollectionProgress())).expiring
    rules = parse_retention(RULES)
    found = await preview_expiry(*arguments, now_us, CollectionProgress(), rules)
    assert dict(found.expiring) == {"branches *: keep_commits 2": 4}
    assert (found.commit_count, found.expired_count) == (6, 0)
    assert (found.objects_max, found.bytes_max) == (3, 12)
    # 6 commits, and 1 branch.
    for rows_max, is_read in ((7, True), (6, False)):
        attempt = preview_expiry(*arguments, now_us, CollectionProgress(), rules, rows_max=rows_max)
        if is_read:
            assert (await attempt).expiring == found.expiring
        else:
            with pytest.raises(TarnError, match="more than 6 commits, branches and tags"):
                await attempt
    await set_rules(lab, RULES)
    await lab.collect()
    assert {block for _, block in made[:3]} & await lab.blocks() == set()
    found = await preview_expiry(*arguments, now_us, CollectionProgress())
    assert (found.commit_count, found.expired_count, found.objects_max) == (2, 4, 0)


async def test_notes_tell_which_commits_were_published(lab: CollectorLab) -> None:
    made = {(await commit(lab, "main", "a"))[0] for _ in range(3)}
    found = await published_commits(lab.collector.blocks, lab.namespace, CollectionProgress())
    assert made <= found
    for name in found:
        key = BlockKey(lab.namespace, f"_tarn/commits/{name}.json")
        assert commit_id_of(from_json(await lab.collector.blocks.read(key))) == name


async def test_rules_are_checked_and_have_the_etag_of_the_settings(lab: CollectorLab) -> None:
    graveler = lab.service.graveler
    found = await graveler.get_retention(lab.admin, "lake")
    assert found.rules_json == ""
    wrong = graveler.set_retention(lab.admin, "lake", '{"x": 1}', if_match=found.etag)
    assert await reason_of(wrong) is Reason.INVALID_ARGUMENT
    await set_rules(lab, RULES)
    late = graveler.set_retention(lab.admin, "lake", RULES, if_match=found.etag)
    assert await reason_of(late) is Reason.SETTINGS_CHANGED
    now = await graveler.get_retention(lab.admin, "lake")
    assert parse_retention(now.rules_json) == parse_retention(RULES)


async def test_only_a_run_lets_commits_and_tags_expire(lab: CollectorLab) -> None:
    head, _ = await commit(lab, "main", "a")
    late = lab.collector.client.expire_commits(lab.admin, "lake", "f" * 32, {head: "rule"})
    assert await reason_of(late) is Reason.COLLECTION_LOST
    late = lab.collector.client.expire_tags(lab.admin, "lake", "f" * 32, [])
    assert await reason_of(late) is Reason.COLLECTION_LOST

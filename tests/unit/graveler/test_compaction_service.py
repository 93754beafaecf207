"""CompactionService as its callers see it: over the in-process transport, with the real auth."""

from __future__ import annotations

from unittest import mock

import pytest
from graveler_service import Service, reason_of

from tarn.block.committed import BuildResult
from tarn.core.errors import Kind, Reason, TarnError
from tarn_graveler.branch.building import BuildOrder, InlineBuilder
from tarn_proto.graveler.v1 import compaction_service_pb2 as pb
from tarn_proto.graveler.v1 import settings_service_pb2


async def test_a_compaction_tells_its_work_and_the_statistics_tell_the_layers(
    service: Service,
) -> None:
    graveler, admin = service.graveler, service.admin
    for name in ("a", "b", "c"):
        await service.put(name, 1)
    await graveler.create_commit(admin, "lake", "main", "m")
    await service.put("d", 2)
    await graveler.unstage(admin, "lake", "main", "a")
    before = await graveler.staging_statistics(admin, "lake", "main")
    assert (before.row_count, before.tombstone_count, before.sealed_token_count) == (2, 1, 0)
    assert before.size_bytes > 100
    assert before.HasField("oldest_write_time")
    assert not before.is_truncated
    assert not before.HasField("last_compaction_time")
    done = await graveler.compact_branch(admin, "lake", "main")
    assert done.outcome == pb.COMPACTION_OUTCOME_COMPACTED
    assert (done.rows_read, done.tombstones_removed, done.tokens_taken) == (2, 1, 1)
    assert done.rows_written == 3
    after = await graveler.staging_statistics(admin, "lake", "main")
    assert (after.row_count, after.sealed_token_count, after.compacted_row_count) == (0, 0, 3)
    assert after.compacted_metarange_id == done.compacted_metarange_id
    assert after.HasField("last_compaction_time")
    assert not after.HasField("oldest_write_time")
    again = await graveler.compact_branch(admin, "lake", "main")
    assert again.outcome == pb.COMPACTION_OUTCOME_NOTHING_TO_DO


async def test_the_statistics_tell_what_listings_read_since_the_last_compaction(
    service: Service,
) -> None:
    graveler, admin = service.graveler, service.admin
    for name in ("a", "b", "c"):
        await service.put(name, 1)
    await graveler.create_commit(admin, "lake", "main", "three")
    for name in ("b", "c"):
        await graveler.unstage(admin, "lake", "main", name)
    told = await graveler.staging_statistics(admin, "lake", "main")
    assert (told.listed_rows_read, told.listed_rows_returned) == (0, 0), "nothing was listed"
    assert (await graveler.list_entries(admin, "lake", "main")).paths == ["a"]
    told = await graveler.staging_statistics(admin, "lake", "main")
    assert (told.listed_rows_read, told.listed_rows_returned) == (5, 1)
    await graveler.compact_branch(admin, "lake", "main")
    told = await graveler.staging_statistics(admin, "lake", "main")
    assert (told.listed_rows_read, told.listed_rows_returned) == (0, 0)


async def test_only_a_compaction_for_which_nobody_waits_is_built_behind_everything(
    service: Service,
) -> None:
    orders: list[bool] = []
    build = InlineBuilder.build

    async def noted(builder: InlineBuilder, order: BuildOrder) -> BuildResult:
        orders.append(order.is_background)
        return await build(builder, order)

    with mock.patch.object(InlineBuilder, "build", noted):
        for number in range(2):
            await service.put(f"{number}", 1)
            await service.graveler.compact_branch(
                service.admin, "lake", "main", is_background=bool(number)
            )
    assert orders == [False, True]


async def test_counting_ends_at_the_limit_and_says_so(service: Service) -> None:
    for number in range(5):
        await service.put(f"{number}", 1)
    for limit, counted in ((3, 3), (4, 4), (5, 5), (100, 5)):
        found = await service.graveler.staging_statistics(
            service.admin, "lake", "main", rows_max=limit
        )
        assert (found.row_count, found.is_truncated) == (counted, limit < 5)
    with pytest.raises(TarnError) as raised:
        await service.graveler.staging_statistics(service.admin, "lake", "main", rows_max=-1)
    assert raised.value.kind is Kind.INVALID


async def test_a_compaction_needs_its_own_permission_and_passes_the_rules(
    service: Service,
) -> None:
    """It changes no content, so neither a protection nor a read-only repository blocks it."""
    graveler, admin = service.graveler, service.admin
    await service.put("a", 1)
    ann, dee = await service.as_user("ann", "Analyst"), await service.as_user("dee", "Developer")
    assert await reason_of(graveler.compact_branch(ann, "lake", "main")) is Reason.ACCESS_DENIED
    assert (await graveler.staging_statistics(ann, "lake", "main")).row_count == 1
    kinds = ["CHANGE_KIND_WRITE", "CHANGE_KIND_COMMIT", "CHANGE_KIND_FORCE", "CHANGE_KIND_MERGE"]
    protection = settings_service_pb2.Protection(pattern="main", blocked=kinds)
    settings = await graveler.get_settings(admin, "lake")
    await graveler.set_rules(
        admin, "lake", protections=[protection], hidden_patterns=[], if_match=settings.etag
    )
    await graveler.set_read_only(admin, "lake", True)
    assert await reason_of(graveler.create_commit(dee, "lake", "main", "m")) is not None
    done = await graveler.compact_branch(dee, "lake", "main")
    assert done.outcome == pb.COMPACTION_OUTCOME_COMPACTED


async def test_what_does_not_exist_is_not_found(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    for work in (graveler.compact_branch, graveler.staging_statistics):
        assert await reason_of(work(admin, "lake", "never")) is Reason.BRANCH_NOT_FOUND
        assert await reason_of(work(admin, "nowhere", "main")) is Reason.REPOSITORY_NOT_FOUND
        assert await reason_of(work(admin, "lake", "a b")) is Reason.INVALID_ARGUMENT

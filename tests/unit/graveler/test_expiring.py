"""Branches that live for a limited time: warned about, deleted after their grace, and kept if they are prolonged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from graveler_service import Service, reason_of, running_service
from lake import Lake, Running, reached
from lake_rules import protect
from permits import permit_for

from tarn.core.branch_expiry import expiry_in
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId
from tarn.core.levels import LEVEL_FIRST, FeatureGate
from tarn.kv.embedded import open_embedded
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Group, OutcomeUnknownError, Partition
from tarn_graveler.branch.default_branch import DefaultBranch
from tarn_graveler.handlers.branches import BranchHandler
from tarn_graveler.records.branches import BranchName
from tarn_proto.graveler.v1 import branch_service_pb2 as pb
from tarn_proto.graveler.v1.settings_service_pb2 import CHANGE_KIND_DELETE, Protection

DAY = 86_400
DEV = BranchId("dev")
KEY = RepositoryKeys.branch(DEV)


async def names(service: Service) -> list[str]:
    page = await service.graveler.list_branches(service.admin, "lake")
    return [each.branch_id for each in page.branches]


async def later(service: Service, days: float) -> Service:
    """Lets time pass and all replicas clean; returns the services for an admin who has logged in again."""
    for graveler in service.replicas.made:
        await graveler.cleaner.drop_due()
    service.clock.advance(days * DAY)
    for graveler in service.replicas.made:
        await graveler.cleaner.drop_due()
    return await service.logged_in()


async def state_of(service: Service, branch: str = "dev") -> int:
    found = await service.graveler.get_branch(service.admin, "lake", branch)
    return found.expiry.state


@pytest.fixture
async def dev(lake: Lake) -> BranchName:
    """A branch that expires in ten days, and is deleted in eleven."""
    name = lake.branch(DEV)
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    await lake.graveler.branches.create(name, head)
    await prolong(lake, 10)
    return name


async def prolong(lake: Lake, days: int) -> None:
    expiry = expiry_in(days * DAY * 1_000_000, lake.clock.now_us())
    await lake.graveler.expiring.set(lake.branch(DEV), expiry)


async def exists(lake: Lake, branch: BranchId = DEV) -> bool:
    return branch in [name async for name, _ in lake.graveler.iterators.branches(lake.repository)]


async def after_days(lake: Lake, days: float) -> None:
    await lake.graveler.cleaner.drop_due()
    lake.clock.advance(days * DAY)
    await lake.graveler.cleaner.drop_due()


# ---- what users see


@pytest.mark.parametrize("store", ["memory", "embedded"])
async def test_a_branch_is_warned_about_kept_for_a_day_deleted_and_restored(
    tmp_path: Path, store: str
) -> None:
    kv = None if store == "memory" else await open_embedded(tmp_path / "tarn.db", durability="os")
    async with running_service(tmp_path, kv) as begun, begun.another_replica():
        service = begun
        graveler, clock = service.graveler, service.clock
        made = await graveler.create_branch(
            service.admin, "lake", "dev", "main", time_to_live_s=10 * DAY
        )
        await service.put("a", 7, "dev")
        head = (await graveler.create_commit(service.admin, "lake", "dev", "m")).commit.commit_id
        begin_s = clock.now_us() // 1_000_000
        assert made.expiry.expire_time.seconds == begin_s + 10 * DAY
        assert made.expiry.delete_time.seconds == begin_s + 11 * DAY
        assert made.expiry.state == pb.BRANCH_EXPIRY_STATE_ACTIVE
        for days, state in ((9, "SOON"), (1, "EXPIRED"), (0.99, "EXPIRED")):
            service = await later(service, days)
            wanted = pb.BranchExpiryState.Value(f"BRANCH_EXPIRY_STATE_{state}")
            listed = (await graveler.list_branches(service.admin, "lake", prefix="dev")).branches[0]
            assert await state_of(service) == listed.expiry.state == wanted
        await service.put("b", 8, "dev")
        service = await later(service, 0.01)
        assert await names(service) == ["main"]
        assert await reason_of(service.size("dev", "a")) is Reason.REF_NOT_FOUND
        deleted = [replica.expiring.progress.deleted for replica in service.replicas.made]
        assert sorted(deleted) == [0, 1], "one of the replicas"
        restored = await graveler.restore_branch(service.admin, "lake", "dev")
        assert restored.commit_id == head
        assert not restored.HasField("expiry")
        assert await service.size("dev", "a") == 7
        assert await reason_of(service.size("dev", "b")) is Reason.ENTRY_NOT_FOUND
        service = await later(service, 100)
        assert await names(service) == ["dev", "main"]
    if kv is not None:
        await kv.close()


async def test_a_branch_is_prolonged_shortened_and_kept_for_ever(service: Service) -> None:
    graveler = service.graveler
    for name in ("long", "short", "ever"):
        await graveler.create_branch(service.admin, "lake", name, "main", time_to_live_s=10 * DAY)
    service = await later(service, 10.5)
    assert await state_of(service, "long") == pb.BRANCH_EXPIRY_STATE_EXPIRED
    await graveler.set_branch_expiry(service.admin, "lake", "long", 30 * DAY)
    assert await state_of(service, "long") == pb.BRANCH_EXPIRY_STATE_ACTIVE
    await graveler.set_branch_expiry(service.admin, "lake", "short", 60)
    kept = await graveler.set_branch_expiry(service.admin, "lake", "ever", None)
    assert not kept.HasField("expiry")
    service = await later(service, 0.5)
    assert await names(service) == ["ever", "long", "main", "short"]
    service = await later(service, 0.6)
    assert await names(service) == ["ever", "long", "main"]
    service = await later(service, 40)
    assert await names(service) == ["ever", "main"]


async def test_a_branch_of_the_same_name_has_its_own_end(service: Service) -> None:
    graveler = service.graveler
    await graveler.create_branch(service.admin, "lake", "dev", "main", time_to_live_s=10 * DAY)
    await graveler.delete_branch(service.admin, "lake", "dev")
    await graveler.create_branch(service.admin, "lake", "dev", "main")
    service = await later(service, 20)
    assert await names(service) == ["dev", "main"]


async def test_the_default_branch_has_no_end(service: Service) -> None:
    graveler = service.graveler
    invalid = Reason.INVALID_ARGUMENT
    assert (
        await reason_of(graveler.set_branch_expiry(service.admin, "lake", "main", DAY)) is invalid
    )
    await graveler.create_branch(service.admin, "lake", "dev", "main", time_to_live_s=DAY)
    await graveler.set_default_branch(service.admin, "lake", "dev")
    assert not (await graveler.get_branch(service.admin, "lake", "dev")).HasField("expiry")
    await graveler.set_default_branch(service.admin, "lake", "main")
    service = await later(service, 20)
    assert await names(service) == ["dev", "main"]


async def test_who_may_not_delete_a_branch_sets_no_end(service: Service) -> None:
    graveler = service.graveler
    await graveler.create_branch(service.admin, "lake", "rel-1", "main")
    kept = Protection(pattern="rel-*", blocked=[CHANGE_KIND_DELETE], exempt_user_ids=["root"])
    await protect(service, kept)
    eve = await service.as_user("eve", "Developer")
    for work in (
        graveler.create_branch(eve, "lake", "rel-2", "main", time_to_live_s=DAY),
        graveler.set_branch_expiry(eve, "lake", "rel-1", DAY),
        graveler.set_branch_expiry(eve, "lake", "rel-1", None),
    ):
        assert await reason_of(work) is Reason.BRANCH_PROTECTED
    ann = await service.as_user("ann", "Analyst")
    denied = Reason.ACCESS_DENIED
    assert await reason_of(graveler.set_branch_expiry(ann, "lake", "rel-1", DAY)) is denied
    assert await names(service) == ["main", "rel-1"]


async def test_a_branch_that_is_protected_or_read_only_stays_until_it_is_not(
    service: Service,
) -> None:
    graveler = service.graveler
    await graveler.create_branch(service.admin, "lake", "dev", "main", time_to_live_s=10 * DAY)
    await graveler.create_branch(service.admin, "lake", "try", "main", time_to_live_s=10 * DAY)
    await protect(
        service,
        Protection(pattern="dev", blocked=[CHANGE_KIND_DELETE], exempt_user_ids=["root"]),
    )
    service = await later(service, 11)
    assert await names(service) == ["dev", "main"], "no user is exempt if time decides"
    await graveler.set_read_only(service.admin, "lake", read_only=True)
    await protect(service)
    service = await later(service, 1.5)
    assert await names(service) == ["dev", "main"]
    await graveler.set_read_only(service.admin, "lake", read_only=False)
    service = await later(service, 0.01)
    assert await names(service) == ["dev", "main"], "looked at again after a day"
    service = await later(service, 1)
    assert await names(service) == ["main"]
    progress = service.replicas.made[0].expiring.progress
    assert (progress.deleted, progress.kept) == (2, 2)


async def test_an_end_is_set_only_at_a_level_that_knows_it(lake: Lake) -> None:
    """Release 0.9.0 would take the row of the drop list for a partition, and drop the field of the record."""
    graveler = replace(lake.graveler, features=FeatureGate.at(LEVEL_FIRST))
    handler = BranchHandler(graveler)
    day = Duration(seconds=DAY)
    new = pb.CreateBranchRequest(repository_id="lake", branch_id="dev", time_to_live=day)
    old = pb.SetBranchExpiryRequest(repository_id="lake", branch_id="main", time_to_live=day)
    created = handler.CreateBranch(new, permit_for(new, lake.repository))
    assert await reason_of(created) is Reason.FEATURE_LEVEL
    changed = handler.SetBranchExpiry(old, permit_for(old, lake.repository))
    assert await reason_of(changed) is Reason.FEATURE_LEVEL
    assert not await exists(lake)


# ---- races


async def test_a_branch_that_is_prolonged_while_it_is_being_deleted_stays(
    lake: Lake, other: Lake, dev: BranchName, running: Running
) -> None:
    """The deletion has judged the record, and its compare-and-set is on its way."""
    gate = lake.kv.hold("delete_if", KEY)
    deleting = running.start(after_days(lake, 11))
    await reached(gate)
    await prolong(other, 10)
    await lake.put("a", 1, DEV)
    gate.open()
    await deleting
    assert await exists(lake)
    assert await lake.get("a", "dev") == 1
    found = await lake.graveler.reflog.page(lake.repository, DEV, "", 10)
    assert [each.operation.value for each in found.entries] == ["create"]
    await lake.drop_everything_removed()
    assert await lake.get("a", "dev") == 1, "its token was announced, and is not dropped"
    await after_days(lake, 11)
    assert not await exists(lake)


async def test_a_prolongation_after_the_deletion_is_refused(
    lake: Lake, other: Lake, dev: BranchName, running: Running
) -> None:
    """The prolongation has read the record, and its compare-and-set is on its way."""
    gate = lake.kv.hold("set_if", KEY)
    prolonging = running.start(prolong(other, 30))
    await reached(gate)
    await after_days(lake, 11)
    gate.open()
    with pytest.raises(TarnError) as raised:
        await prolonging
    assert raised.value.reason is Reason.BRANCH_NOT_FOUND
    assert not await exists(lake)


async def test_a_branch_that_becomes_the_default_while_it_is_being_deleted_stays(
    lake: Lake, other: Lake, dev: BranchName, running: Running
) -> None:
    gate = lake.kv.hold("delete_if", KEY)
    deleting = running.start(after_days(lake, 11))
    await reached(gate)
    default = DefaultBranch(other.graveler.repositories, other.graveler.branches)
    await default.set(dev, "")
    gate.open()
    await deleting
    assert await exists(lake)
    await after_days(lake, 30)
    assert await exists(lake)


async def test_an_end_that_raced_with_the_change_of_the_default_branch_deletes_nothing(
    lake: Lake, dev: BranchName
) -> None:
    """The end was set between the check of the default branch and its change."""
    default = DefaultBranch(lake.graveler.repositories, lake.graveler.branches)
    await default.set(dev, "")
    await prolong(lake, 10)
    for days in (11, 1, 1):
        await after_days(lake, days)
        assert await exists(lake)
    assert lake.graveler.expiring.progress.kept == 3
    await default.set(lake.main, "")
    await after_days(lake, 1)
    assert not await exists(lake)


@pytest.mark.parametrize("applied", [True, False])
async def test_a_deletion_whose_answer_is_lost_is_made_once(
    lake: Lake, dev: BranchName, applied: bool
) -> None:
    lake.kv.lose("delete_if", KEY, applied=applied)
    with pytest.raises(OutcomeUnknownError):
        await after_days(lake, 11)
    await lake.graveler.cleaner.drop_due()
    assert not await exists(lake)


@pytest.mark.parametrize(
    "answer", [OutcomeUnknownError("lost"), TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no")]
)
async def test_a_record_names_no_end_at_which_nobody_looks(
    lake: Lake, answer: TarnError, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.graveler.branches.create(
        lake.branch(DEV), (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    )
    write = lake.kv.set_many

    async def refuse(partition: Partition, groups: Sequence[Group]) -> list[TarnError | None]:
        if "/cleanup/" not in partition.name:
            return await write(partition, groups)
        return [answer for _ in groups]

    monkeypatch.setattr(lake.kv, "set_many", refuse)
    with pytest.raises(TarnError) as raised:
        await prolong(lake, 10)
    assert raised.value.kind is Kind.UNAVAILABLE
    assert (await lake.graveler.branches.fresh(lake.branch(DEV))).branch.expiry is None


async def test_a_branch_that_cannot_be_judged_does_not_stop_the_cleaner(
    lake: Lake, dev: BranchName
) -> None:
    """Its record is damaged; the tokens of other branches are dropped all the same."""
    refs = lake.graveler.repositories.keys_of(lake.repository).refs
    (found,) = await lake.kv.get_many(refs, [KEY])
    assert found is not None
    await lake.kv.set_if(refs, KEY, b"\xff damaged", found.predicate)
    await after_days(lake, 11)
    await lake.put("a", 1)
    await lake.commit()
    assert await lake.drop_everything_removed() > 0
    assert lake.graveler.expiring.progress.kept == 1

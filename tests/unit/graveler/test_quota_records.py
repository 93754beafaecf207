"""How quotas are stored: beside others who change them, when answers are lost, and how many there may be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from unittest import mock

import pytest
from lake import Lake
from tests.support.clock import ManualClock

from tarn.aio.task_set import TaskSet
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.quota import Limits, Quota, QuotaKind
from tarn.kv.keys import InstallationKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import (
    OutcomeUnknownError,
    Partition,
    Predicate,
    PredicateFailedError,
    Row,
    Versioned,
)
from tarn.kv.quota_records import encode_limits
from tarn_graveler.records import quotas as module
from tarn_graveler.records.quotas import REFRESH_SECONDS, QuotaDefaults, QuotaRecords

KEYS = InstallationKeys("test")
SET, CLEARED = Limits(branches=4), Limits()


def quota(name: str = "lake", limits: Limits = SET) -> Quota:
    return Quota(QuotaKind.REPOSITORY, name, limits)


async def test_only_so_many_quotas_can_be_set(lake: Lake) -> None:
    """Those that are set can still be changed and cleared."""
    records = lake.graveler.admission.records
    with mock.patch.object(module, "QUOTAS_MAX", 2):
        await records.set(quota("one"))
        await records.set(quota("two"))
        with pytest.raises(TarnError, match="2 quotas are set") as raised:
            await records.set(quota("three"))
        assert raised.value.kind is Kind.EXHAUSTED
        await records.set(quota("two", Limits(branches=5)))
        await records.set(quota("three", CLEARED))
        await records.set(quota("one", CLEARED))
        await records.set(quota("three"))
    assert [each.name for each in await records.load()] == ["three", "two"]


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("limits", [SET, CLEARED])
async def test_a_change_whose_answer_was_lost_is_tried_until_it_is_known(
    lake: Lake, other: Lake, limits: Limits, applied: bool
) -> None:
    records, theirs = lake.graveler.admission.records, other.graveler.admission.records
    await records.set(quota(limits=Limits(uploads=1)))
    lake.kv.lose("set_if" if limits else "delete_if", applied=applied)
    await records.set(quota(limits=limits))
    assert await theirs.get(QuotaKind.REPOSITORY, "lake") == limits
    assert records.of_repository("lake") == limits


async def test_a_change_settles_an_earlier_one_whose_outcome_is_open(
    lake: Lake,
) -> None:
    """A plain read does not see it, and it could land after the answer that there is nothing to clear."""
    lake.kv.lose("set_if", applied=True)
    key = KEYS.quota(QuotaKind.REPOSITORY, "lake")
    with pytest.raises(OutcomeUnknownError):
        await lake.kv.set_if(KEYS.graveler, key, encode_limits(SET), None)
    await lake.graveler.admission.records.set(quota(limits=CLEARED))
    assert await lake.kv.get_many(KEYS.graveler, [key], settle=True) == [None]


async def test_the_last_quotas_stay_in_force_while_they_cannot_be_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, tasks = lake.graveler.admission.records, TaskSet()
    await records.set(quota())
    with monkeypatch.context() as broken:

        async def fail() -> list[Quota]:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store is down")

        broken.setattr(records, "load", fail)
        tasks.spawn(records.run())
        await asyncio.sleep(0)
        lake.clock.advance(REFRESH_SECONDS)
        await asyncio.sleep(0)
        assert records.of_repository("lake") == SET
    key = KEYS.quota(QuotaKind.REPOSITORY, "lake")
    await lake.kv.delete_many(KEYS.graveler, [key])
    for _ in range(20):
        await asyncio.sleep(0)
        lake.clock.advance(REFRESH_SECONDS)
    assert not records.of_repository("lake")
    await tasks.close()


class _Store(MemKv):
    """Loses the answer of the first write, or not; then reads fail, or all writes lose their race."""

    def __init__(self, *, loses: bool, reads_fail: bool) -> None:
        super().__init__()
        self.loses, self.reads_fail, self.asked = loses, reads_fail, 0

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        if self.asked and self.reads_fail:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store is down")
        return await super().get_many(partition, keys, settle=settle)

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        self.asked += 1
        if self.loses and self.asked == 1:
            raise OutcomeUnknownError("the answer was lost")
        raise PredicateFailedError(key, None)


def records_of(kv: MemKv, clock: Clock) -> QuotaRecords:
    return QuotaRecords(kv, KEYS, clock, QuotaDefaults())


@pytest.mark.parametrize("reads_fail", [True, False])
async def test_a_change_that_may_have_been_made_is_never_told_as_refused(
    reads_fail: bool,
) -> None:
    records = records_of(_Store(loses=True, reads_fail=reads_fail), ManualClock())
    with pytest.raises(OutcomeUnknownError):
        await records.set(quota())
    assert not records.of_repository("lake")


async def test_a_change_that_always_loses_its_race_is_given_up() -> None:
    kv = _Store(loses=False, reads_fail=False)
    with pytest.raises(TarnError, match="try again") as raised:
        await records_of(kv, ManualClock()).set(quota())
    assert raised.value.reason is Reason.TOO_MANY_RETRIES
    assert kv.asked == 16

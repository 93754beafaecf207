"""A pause is that of all compactors of an installation."""

from __future__ import annotations

from compactor_lab import CompactorLab, simulated
from graveler_service import reason_of


@simulated
async def test_a_pause_holds_and_ends(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor, lab.client(compactor) as client:
        await client.pause(lab.service.admin, 600)
        await lab.put_and_delete(30)
        await lab.passes(100.0)
        assert compactor.compactor.totals.compactions == 0
        told = await client.status(lab.service.admin)
        assert (told.paused_by, told.HasField("pause_end_time")) == ("root", True)
        assert told.pause_end_time.seconds - told.pause_start_time.seconds == 600
        await client.resume(lab.service.admin)
        await lab.until(lambda: compactor.compactor.totals.compactions == 1)
        told = await client.status(lab.service.admin)
        assert (told.paused_by, told.HasField("pause_end_time")) == ("", False)
        await client.pause(lab.service.admin, 60)
        await lab.put_and_delete(30, name="again")
        await lab.until(lambda: compactor.compactor.totals.compactions == 2)


@simulated
async def test_a_pause_without_a_length_lasts_an_hour(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor, lab.client(compactor) as client:
        began_s = lab.service.clock.now_us() // 1_000_000
        end = (await client.pause(lab.service.admin)).pause_end_time.seconds
        assert abs(end - began_s - 3600) <= 1
        endless = await client.pause(lab.service.admin, until_resumed=True)
        assert not endless.HasField("pause_end_time")


@simulated
async def test_work_goes_on_as_soon_as_a_pause_is_ended(lab: CompactorLab) -> None:
    """The compactor that is asked does not wait until it reads the pause again."""
    async with lab.compactor() as compactor, lab.client(compactor) as client:
        await client.pause(lab.service.admin, until_resumed=True)
        await lab.put_and_delete(30)
        await lab.passes(31.0)
        await client.resume(lab.service.admin)
        await lab.until(lambda: compactor.compactor.totals.compactions == 1, 1.0)


@simulated
async def test_a_pause_holds_for_all_compactors_and_survives_their_restarts(
    lab: CompactorLab,
) -> None:
    admin = lab.service.admin
    async with lab.compactor() as first, lab.compactor(seed=1) as second:
        async with lab.client(first) as asked:
            await asked.pause(admin, until_resumed=True)
        async with lab.client(second) as other:
            told = await other.status(admin)
            assert (told.paused_by, told.HasField("pause_end_time")) == ("root", False)
        # At once: a compactor that has not heard of the pause yet reads it before its compaction.
        await lab.put_and_delete(30)
        await lab.passes(100.0)
    async with lab.compactor(seed=2) as third, lab.compactor(seed=3) as fourth:
        await lab.passes(100.0)
        assert lab.graveler.count("CompactBranch") == 0
        async with lab.client(third) as other:
            await other.resume(admin)
        await lab.until(
            lambda: third.compactor.totals.compactions + fourth.compactor.totals.compactions == 1
        )
    assert await lab.tombstones() == 0


@simulated
async def test_each_compactor_works_again_after_the_end_of_a_pause(lab: CompactorLab) -> None:
    async with lab.compactor() as first, lab.compactor(seed=1) as second:
        async with lab.client(first) as asked:
            await asked.pause(lab.service.admin, 60)
        await lab.passes(10.0)
        assert (first.pauses.is_believed, second.pauses.is_believed) == (True, True)
        await lab.passes(60.0)
        assert (first.pauses.is_believed, second.pauses.is_believed) == (False, False)


@simulated
async def test_a_pause_does_not_stop_who_asks_for_a_compaction(lab: CompactorLab) -> None:
    graveler, admin = lab.service.graveler, lab.service.admin
    async with lab.compactor() as compactor, lab.client(compactor) as client:
        await client.pause(admin, 600)
        await lab.put_and_delete(30)
        done = await graveler.compact_branch(admin, "lake", "main")
        assert done.tombstones_removed == 30
        assert compactor.compactor.totals.compactions == 0


@simulated
async def test_nothing_is_compacted_while_the_pause_cannot_be_read(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor:
        lab.graveler.failing = {"GetCompactionPause"}
        await lab.put_and_delete(30)
        await lab.passes(20.0)
        assert compactor.compactor.totals.failures > 0
        assert lab.graveler.count("CompactBranch") == 0
        lab.graveler.failing = set()
        await lab.until(lambda: compactor.compactor.totals.compactions == 1)


@simulated
async def test_a_pause_is_limited(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor, lab.client(compactor) as client:
        refused = client.pause(lab.service.admin, 8 * 86_400)
        assert await reason_of(refused) == "INVALID_ARGUMENT"

"""Pull requests in a backup: all of them, with an index that fits."""

from dataclasses import replace

from backup_lab import BackupLab
from pull_records import new_pull

from tarn.core.ids import UserId
from tarn.core.pull_request import EventKind, PullEvent, PullState
from tarn.kv.port import Partition


async def test_pull_requests_come_back_and_the_open_ones_are_found(lab: BackupLab) -> None:
    """One is closed and another one opened while the backup is made: after the records were read, before the index."""
    lake, pulls = lab.lake, lab.lake.graveler.pulls
    for source in ("a", "b"):
        await pulls.create(lake.repository, new_pull(source))
    event = PullEvent(EventKind.COMMENT, UserId("ann"), 1, "kept")
    await pulls.change(lake.repository, 2, lambda now: now, event)
    done = False

    async def meanwhile(partition: Partition, start: bytes) -> None:
        nonlocal done
        if done or partition != lab.keys.pulls or not lab.keys.PULL_INDEX.startswith(start):
            return
        done = True
        closed, _ = await pulls.change(
            lake.repository, 1, lambda now: replace(now, state=PullState.CLOSED)
        )
        await pulls.leave(lake.repository, closed)
        await pulls.create(lake.repository, new_pull("c"))

    await lab.back_up(meanwhile)
    assert done
    kv = await lab.restored()
    assert await lab.fsck(kv) == []
    async with lab.served(kv) as again:
        restored = again.graveler.pulls
        page = await restored.page(again.repository, lambda _: True, 0, 10, open_only=True)
        states = await restored.page(again.repository, lambda _: True, 0, 10, open_only=False)
        open_ones = [each.number for each in states.pulls if each.state is PullState.OPEN]
        assert [each.number for each in page.pulls] == open_ones
        assert {1, 2} <= {each.number for each in states.pulls}
        events, _ = await restored.events(again.repository, 2, 0, 10)
        assert [each.body for _, each in events] == ["kept"]
        made = await restored.create(again.repository, new_pull("d"))
        assert made.number > max(each.number for each in states.pulls)

"""`tarn fsck` and pull requests: each of their rows is read."""

from __future__ import annotations

from fsck_lab import FsckLab
from pull_records import new_pull

from tarn.core.ids import UserId
from tarn.core.pull_request import EventKind, PullEvent
from tarn.fsck.finding import Code


async def test_damaged_and_strange_rows_of_pull_requests_are_reported(lab: FsckLab) -> None:
    lake, keys = lab.lake, lab.keys
    made = await lake.graveler.pulls.create(lake.repository, new_pull("dev"))
    event = PullEvent(EventKind.COMMENT, UserId("ann"), 1, "a comment")
    await lake.graveler.pulls.change(lake.repository, made.number, lambda now: now, event)
    assert await lab.check() == []
    (record,) = await lab.kv.get_many(keys.pulls, [keys.pull(1)])
    assert record is not None
    await lab.set(keys.pulls, keys.pull(7), record.value)
    await lab.set(keys.pulls, keys.pull_event(1, 2), b"\xff")
    await lab.set(keys.pulls, keys.PULL_INDEX, b"\xff")
    await lab.set(keys.pulls, b"strange/row", b"")
    found = await lab.check(state="second.state")
    assert sorted(code for code, _ in found) == [
        Code.KEY_UNKNOWN.label,
        *[Code.RECORD_DAMAGED.label] * 3,
    ]

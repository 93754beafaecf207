"""A replica shows the progress of its cleaner and the use of its cache of ranges."""

from __future__ import annotations

from lake import Lake

from tarn.telemetry.meters import Meters
from tarn_graveler.metrics import register_replica


def values(meters: Meters, name: str) -> list[float]:
    return [value for _, value in meters.samples(name)]


async def test_the_cleaner_tells_its_drops_and_its_lag(lake: Lake) -> None:
    meters, graveler = Meters(), lake.graveler
    register_replica(meters, lake.clock, graveler, graveler.committed, None)
    assert values(meters, "cleanup.lag") == [0]
    await lake.put("a", 1)
    await lake.commit()
    dropped = await lake.drop_everything_removed()
    assert dropped > 0
    assert values(meters, "cleanup.drops") == [dropped]
    before = values(meters, "cleanup.lag")[0]
    lake.clock.advance(1000)
    assert values(meters, "cleanup.lag") == [before + 1000]
    await graveler.cleaner.drop_due()
    await graveler.cleaner.drop_due()
    assert values(meters, "cleanup.lag")[0] < before + 1000
    assert "heavy.running" not in {family.metric.name for family in meters.collect()}


async def test_look_ups_of_ranges_are_counted_by_where_they_ended(lake: Lake, other: Lake) -> None:
    meters = Meters()
    await lake.put("a", 1)
    await lake.commit()
    # The other replica has a folder of its own, so it fetches.
    register_replica(meters, lake.clock, other.graveler, other.graveler.committed, None)
    for _ in range(3):
        assert await other.get("a") == 1
    found = {labels["outcome"]: value for labels, value in meters.samples("range.lookups")}
    assert (found["fetch"], found["load"]) == (1, 0)
    assert found["hit"] >= 2

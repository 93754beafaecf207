"""Registrations of the journal belong to the installation: no record names their partitions."""

from __future__ import annotations

from fsck_lab import FsckLab

from tarn.core.levels import ALL_FEATURES
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.record_events import JournaledKv
from tarn.kv.registrations import hour_of


async def test_events_and_their_registrations_are_no_damage(lab: FsckLab) -> None:
    keys, clock = InstallationKeys("test"), lab.lake.clock
    kv = JournaledKv(lab.kv, "test", clock, lab.ids, ALL_FEATURES)
    refs = lab.lake.graveler.repositories.keys_of(lab.lake.repository).refs
    (found,) = await kv.get_many(refs, [RepositoryKeys.branch("main")])
    assert found is not None
    await kv.set_if(refs, RepositoryKeys.branch("main"), found.value, found.predicate)
    assert await lab.kv.scan(keys.registrations(hour_of(clock.now_us())), b"", None, 10)
    lab.days = 3
    assert await lab.check() == [], lab.details

"""The journal of reads belongs to an installation; its rows can be read, and its files are not foreign."""

from __future__ import annotations

from fsck_lab import FsckLab

from tarn.core.entry import Entry, pack
from tarn.core.levels import ALL_FEATURES
from tarn.fsck.finding import Code
from tarn.kv.fence import fence_partition
from tarn.kv.keys import InstallationKeys
from tarn.kv.read_records import ON_KEY
from tarn_graveler.reads.journal import ReadJournal


async def test_the_journal_is_known_and_its_rows_are_checked(lab: FsckLab) -> None:
    keys = InstallationKeys("test")
    journal = ReadJournal(lab.kv, lab.blocks, lab.lake.clock, lab.ids, keys, ALL_FEATURES)
    await journal.begin()
    journal.note(lab.lake.repository, pack(Entry(1, 0, lab.ids.uuid7(), bytes(16))))
    await journal.flush()
    assert len(await lab.listed("_tarn/reads/")) == 1
    lab.days = 3
    assert await lab.check() == [], lab.details
    rows = await lab.kv.scan(keys.reads, b"", None, 10)
    assert len(rows) == 2, "a session, and the files of a day"
    for key, _ in rows:
        await lab.set(keys.reads, key, b"{}")
    await lab.set(keys.reads, rows[0][0] + b"x", rows[0][1])
    await lab.set(fence_partition("test"), ON_KEY, b"{}")
    found = await lab.check()
    assert [code for code, _ in found] == [Code.RECORD_DAMAGED.label] * 4, lab.details

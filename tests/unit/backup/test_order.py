"""The table of records: it knows every layout of `tarn.kv.keys`, and backups read in its order."""

from __future__ import annotations

import re

from backup_lab import INSTALLATION, BackupLab
from lake import MAIN
from layouts import NO_RECORDS, names_of_layouts

from tarn.backup.order import RECORDS, Step
from tarn.core.branch_expiry import expiry_in
from tarn.core.ids import BranchId, TagId
from tarn.kv.keys import AuthKeys, InstallationKeys, RepositoryKeys
from tarn.kv.port import Partition
from tarn_graveler.uploads.state import NewUpload


def test_the_table_has_every_layout_once() -> None:
    rows = [each.layout for each in RECORDS]
    assert len(rows) == len(set(rows))
    assert not set(rows) & NO_RECORDS
    assert set(rows) | NO_RECORDS == names_of_layouts()


def test_a_record_is_copied_before_the_records_that_it_needs() -> None:
    by_layout = {each.layout: each for each in RECORDS}
    for record in RECORDS:
        if record.step is None:
            assert record.guard, f"{record.layout} is left out without a reason"
        for name in record.needs:
            needed = by_layout[name].step
            assert record.step is not None
            assert needed is not None
            assert record.step <= needed, f"{record.layout} needs {name}"
            why = record.guard or by_layout[name].guard
            assert record.step < needed or why, f"{record.layout} is copied beside {name}"


def step_of(partition: Partition, start: bytes, keys: RepositoryKeys) -> Step | None:
    """The step that a read of a backup belongs to; None: it is no copy."""
    shared, name = InstallationKeys(INSTALLATION), partition.name
    if name.startswith(f"{keys.root}/uploads/"):
        return Step.UPLOADS
    if re.fullmatch(rf"{re.escape(keys.root)}/[^/]+:[^:/]+", name):
        return Step.BRANCHES
    if partition == keys.refs:
        if start.startswith(keys.UPLOAD_DAYS):
            return Step.UPLOADS
        if start.startswith(keys.branch("")):
            return Step.BRANCHES
        return Step.COMMITS if start.startswith(keys.name("")) else Step.REFS
    if name.startswith(f"{shared.cleanup.name}/"):
        return Step.LOOKS
    return {
        shared.cleanup: Step.CHECKPOINT,
        AuthKeys(INSTALLATION).partition: Step.USERS,
        keys.pulls: Step.PULLS,
        keys.reflog: Step.REFLOGS,
        keys.changed: Step.CHANGED,
        keys.commits: Step.COMMITS,
        shared.graveler: Step.CLOSING if start.startswith(b"repos/") else Step.SHARED,
    }.get(partition)


async def test_a_backup_reads_in_the_order_of_the_table(lab: BackupLab) -> None:
    lake, graveler = lab.lake, lab.lake.graveler
    await lab.put("a", 1)
    head = (await lake.commit()).commit_id
    await graveler.tags.create(lake.repository, TagId("v1"), head)
    await graveler.branches.create(lake.branch(BranchId("dev")), head)
    expiry = expiry_in(86_400_000_000, lake.clock.now_us())
    await graveler.expiring.set(lake.branch(BranchId("dev")), expiry)
    new = NewUpload(MAIN, "b", b"", "ann", "", is_full_object_checksum=False)
    await graveler.uploads.create(lake.repository, new)
    await lab.put("c", 1)
    reads: list[Step] = []

    async def hook(partition: Partition, start: bytes) -> None:
        step = step_of(partition, start, lab.keys)
        # The record of the repository and its `closed` and `collection` rows are also read for the hold.
        is_other = start in (lab.keys.COLLECTION, lab.keys.CLOSED)
        if step is not None and not is_other:
            reads.append(step)

    await lab.back_up(hook)
    # Before the first copy the repositories are listed, and their records are read; the last reads are of the end.
    begin = reads.index(Step.CHECKPOINT)
    copies = [each for each in reads[begin:] if each is not Step.CLOSING]
    assert copies == sorted(copies)
    assert set(copies) == set(Step) - {Step.CLOSING}
    closing = len(reads) - 1 - reads[::-1].index(Step.CLOSING)
    assert reads[closing - 1] is Step.COMMITS
    assert reads[closing + 1] is Step.SHARED

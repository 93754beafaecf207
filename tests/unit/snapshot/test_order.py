"""The table of records: it knows every layout of `tarn.kv.keys`, and backups read in its order."""

from __future__ import annotations

import json
import re
from pathlib import Path

from backup_lab import INSTALLATION, BackupLab
from dumped_lake import fill
from graveler_service import running_service
from lake import MAIN
from layouts import NO_RECORDS, names_of_layouts

from tarn.core.branch_expiry import expiry_in
from tarn.core.ids import BranchId, TagId
from tarn.kv.keys import AuthKeys, InstallationKeys, RepositoryKeys
from tarn.kv.port import Partition
from tarn.snapshot.files.manifest import Scope
from tarn.snapshot.records import LINES, RECORDS, How, Owner, Step
from tarn_graveler.uploads.state import NewUpload


def test_the_table_has_every_layout_once() -> None:
    rows = [each.layout for each in RECORDS if each.owner is not Owner.STORE]
    assert len(rows) == len(set(rows))
    assert not set(rows) & NO_RECORDS
    assert set(rows) | NO_RECORDS == names_of_layouts()


def test_every_scope_says_what_it_copies() -> None:
    for record in RECORDS:
        if record.owner is Owner.STORE:
            assert record.scopes == frozenset()
            continue
        assert Scope.STORE in record.scopes, "a snapshot of a store copies what the store lists"
        assert (Scope.INSTALLATION in record.scopes) == (record.how is not How.LEFT_OUT)
        if Scope.REPOSITORY in record.scopes:
            assert record.owner is Owner.REPOSITORY
            assert Scope.INSTALLATION in record.scopes
    assert {each.line for each in RECORDS} - {""} == set(LINES)


def test_lines_of_a_dump_come_before_those_that_they_need() -> None:
    lines = {each.layout: LINES.index(each.line) for each in RECORDS if each.line}
    for record in RECORDS:
        for name in record.needs:
            if record.line and name in lines:
                assert lines[record.layout] <= lines[name], f"{record.line} needs {name}"


async def test_a_dump_reads_in_the_order_of_the_table(tmp_path: Path) -> None:
    async with running_service(tmp_path) as service:
        await fill(service)
        kinds = []
        token = ""
        while True:
            page = await service.graveler.read_dump(
                service.admin, "lake", page_size=2, page_token=token
            )
            kinds += [json.loads(line)["kind"] for line in page.lines]
            token = page.next_page_token
            if not token:
                break
    # Of a branch, entries that have no row yet come with its record; their rows come later.
    places = [LINES.index(kind) for kind in kinds if kind != "reflog"]
    assert places == sorted(places)
    assert set(kinds) == set(LINES)
    last_reflog = len(kinds) - kinds[::-1].index("reflog")
    assert last_reflog > len(kinds) - kinds[::-1].index("branch")
    assert last_reflog <= kinds.index("commit")


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

"""An intact lake has no findings; each kind of damage gives its own finding and no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fsck_damages
import pytest
from fsck_damages import (
    DAMAGES,
    Damage,
    block_is_an_orphan,
    files_are_orphans,
    fill,
    foreign_files_exist,
    pack_nothing,
)
from fsck_lab import DAYS_LATER, FsckLab
from lake import MAIN

from tarn.block.port import BlockKey
from tarn.block.rangefile import metarange_path
from tarn.core.compaction_pause import CompactionPause
from tarn.core.entry import Entry, judged_at, pack, tombstone_of
from tarn.core.errors import TarnError
from tarn.core.ids import RepositoryId, physical_path
from tarn.fsck.finding import Code
from tarn.fsck.session import FsckOptions
from tarn.kv.compaction_records import encode_pause
from tarn.kv.keys import copied_note, path_key, staged_upload
from tarn.kv.namespace_records import Namespace, encode_namespace
from tarn_graveler.uploads.state import NewUpload


async def test_a_lake_in_use_is_clean(lab: FsckLab) -> None:
    await fill(lab)
    assert (await lab.check(), lab.details) == ([], [])
    assert await lab.check(FsckOptions(verify_data=True)) == []


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
async def test_each_damage_is_found_and_nothing_else(lab: FsckLab, damage: Damage) -> None:
    await fill(lab)
    expected = await damage(lab)
    assert sorted(await lab.check()) == sorted(expected), lab.details


async def test_damaged_bytes_of_the_right_size_are_found_by_reading_them(lab: FsckLab) -> None:
    await fill(lab)
    committed = await lab.put("committed", b"12345")
    await lab.commit()
    staged = await lab.put("staged", b"12345")
    for block in (committed, staged):
        await lab.replace_block(block, b"12354")
    assert await lab.check() == []
    found = await lab.check(FsckOptions(verify_data=True))
    assert found == [("block-damaged", committed), ("block-damaged", staged)]


async def test_an_etag_of_parts_is_no_md5_of_the_body(lab: FsckLab) -> None:
    address = lab.ids.uuid7()
    await lab.blocks.put(BlockKey(lab.namespace, physical_path(address)), b"12345")
    packed = pack(Entry(5, 0, address, bytes(16), etag_parts=2))
    await lab.lake.graveler.staging.stage(lab.lake.main, "parts", packed)
    assert await lab.check(FsckOptions(verify_data=True)) == []
    await lab.commit()
    assert await lab.check(FsckOptions(verify_data=True)) == []


async def test_external_addresses_are_not_checked(lab: FsckLab) -> None:
    packed = pack(Entry(5, 0, bytes(16), bytes(16), external_address="s3://elsewhere/x"))
    await lab.lake.graveler.staging.stage(lab.lake.main, "x", packed)
    assert await lab.check() == []


async def test_a_lost_block_is_reported_once_with_its_references(lab: FsckLab) -> None:
    block = await lab.put("victim")
    for number in range(6):
        await lab.put(f"victi{number}")
        await lab.commit()
    await lab.remove_block(block)
    assert await lab.check() == [("block-missing", block)]
    assert "'victim' in range" in lab.details[0]
    assert lab.details[0].endswith("more refer to it")


async def test_young_leftovers_are_not_orphans(lab: FsckLab) -> None:
    await fill(lab)
    for damage in (block_is_an_orphan, files_are_orphans, foreign_files_exist):
        await damage(lab)
    await lab.lake.graveler.repositories.reserve(RepositoryId("soon"), "", MAIN)
    lab.days = 0.1
    assert await lab.check() == []
    lab.days = DAYS_LATER
    assert {code for code, _ in await lab.check()} > {"block-orphan", "creation-orphan"}


async def test_files_of_collections_are_not_foreign(lab: FsckLab) -> None:
    folder = f"_tarn/collection/{'ab' * 16}/"
    names = ("manifest.json", "quarantine/1-000000.parquet", "notes.txt")
    for name in names:
        await lab.blocks.put(BlockKey(lab.namespace, folder + name), b"x")
    assert await lab.check() == [("block-foreign", folder + "notes.txt")]


async def test_a_listing_that_compaction_made_is_looked_at(lab: FsckLab) -> None:
    """Only the branch record names it; no commit does."""
    await lab.put("a")
    first = await lab.commit()
    await lab.put("b")
    second = await lab.commit()
    metarange_id = second.commit.metarange_id
    branch = await lab.branch()
    await lab.set_branch(
        replace(branch, commit_id=first.commit_id, compacted_metarange_id=metarange_id)
    )
    whole = await lab.check(state="whole")
    assert whole == [], "the second commit is named by the reflog"
    await lab.remove_block(metarange_path(metarange_id))
    gone = set(await lab.check(state="gone")) - set(whole)
    assert [code for code, _ in gone] == [Code.METARANGE_MISSING.label]
    assert any("branch main" in detail for detail in lab.details)


async def test_blocks_that_only_a_compacted_listing_refers_to_are_in_use(lab: FsckLab) -> None:
    """A compaction moves the references of uncommitted objects from the store into a listing of its own."""
    await lab.put("committed")
    await lab.commit()
    folded = await lab.put("folded")
    replaced = await lab.put("replaced")
    assert (await lab.lake.graveler.compacting.compact(lab.lake.main)).compacted is not None
    await lab.lake.drop_everything_removed()
    assert (await lab.check(state="one"), lab.details) == ([], [])
    await lab.put("replaced", b"again")
    assert (await lab.lake.graveler.compacting.compact(lab.lake.main)).compacted is not None
    await lab.lake.drop_everything_removed()
    # The first compaction's listing is garbage now, and so is the block that only it refers to.
    found = await lab.check(state="two")
    assert ("block-orphan", replaced) in found
    assert folded not in {subject for _, subject in found}
    assert {code for code, _ in found} == {"block-orphan", "range-orphan", "metarange-orphan"}, (
        lab.details
    )
    await lab.remove_block(folded)
    assert ("block-missing", folded) in await lab.check(state="three")


async def test_the_copy_of_a_link_is_in_use_before_it_is_staged(lab: FsckLab) -> None:
    new = NewUpload(MAIN, "big", pack_nothing(), "ann", link_until_us=1, is_copied=True)
    upload = await lab.lake.graveler.uploads.create(lab.lake.repository, new)
    assert await lab.check(state="before") == [], "neither needs to be there"
    for address in (upload.record.address, upload.record.linked_address):
        await lab.blocks.put(BlockKey(lab.namespace, physical_path(address)), b"x")
    assert await lab.check(state="both") == []


async def test_a_check_of_one_ref_looks_at_nothing_else(lab: FsckLab) -> None:
    await fill(lab)
    lost = await lab.put("only-on-main")
    await lab.remove_block(lost)
    await block_is_an_orphan(lab)
    lake = ("lake",)
    assert await lab.check(FsckOptions(repositories=lake, ref="dev")) == []
    assert await lab.check(FsckOptions(repositories=lake, ref="tags/v1")) == []
    main = await lab.check(FsckOptions(repositories=lake, ref="branches/main"))
    assert main == [("block-missing", lost)]


async def test_a_missing_repository_or_ref_is_reported(lab: FsckLab) -> None:
    with pytest.raises(TarnError, match="repository missing does not exist"):
        await lab.check(FsckOptions(repositories=("missing",)))
    with pytest.raises(TarnError, match="ref branches/missing does not exist"):
        await lab.check(FsckOptions(repositories=("lake",), ref="missing"))


async def test_a_deleted_repository_leaves_only_its_namespace(lab: FsckLab) -> None:
    await fill(lab)
    await lab.lake.graveler.repositories.mark_deleted(lab.lake.repository)
    assert await lab.check() == []
    await lab.lake.graveler.repositories.remove(lab.lake.repository)
    assert ("namespace-orphan", lab.namespace) in await lab.check()


def test_every_kind_of_damage_is_tested_here() -> None:
    # `block-damaged` needs another option and has its own test above.
    text = Path(fsck_damages.__file__).read_text()
    assert [code.label for code in Code if f'"{code.label}"' not in text] == ["block-damaged"]


async def test_the_notes_of_uploads_and_copies_are_known_and_damaged_ones_are_reported(
    lab: FsckLab,
) -> None:
    await lab.put("x", b"x")
    token = await lab.lake.staging_rows()
    note = staged_upload("01a19467e80070018000000000000003")
    await lab.set(token, note, b"")
    await lab.set(token, copied_note(bytes(16)), b"")
    assert await lab.check() == []
    await lab.set(token, staged_upload("no id"), b"")
    await lab.set(token, note, b"not empty")
    await lab.set(token, copied_note(bytes(16)), b"not empty")
    await lab.set(token, copied_note(b"short"), b"")
    found = await lab.check(state="second.state")
    assert [code for code, _ in found] == [Code.KEY_UNKNOWN.label] * 4


async def test_the_tombstone_of_a_conditional_delete_is_known_and_a_damaged_one_is_reported(
    lab: FsckLab,
) -> None:
    await lab.put("x", b"x")
    token = await lab.lake.staging_rows()
    await lab.set(token, path_key("y"), judged_at(tombstone_of("op"), 5))
    assert await lab.check() == []
    await lab.set(token, path_key("y"), tombstone_of("op")[:-1])
    found = await lab.check(state="second.state")
    assert [code for code, _ in found] == [Code.ENTRY_INVALID.label]


async def test_a_pause_of_compactions_is_known_and_a_damaged_one_is_reported(lab: FsckLab) -> None:
    keys = lab.installation
    await lab.set(keys.graveler, keys.COMPACTION_PAUSE, encode_pause(CompactionPause("ann", 5)))
    assert await lab.check() == []
    await lab.set(keys.graveler, keys.COMPACTION_PAUSE, b"\xff")
    assert [code for code, _ in await lab.check(state="second.state")] == ["record-damaged"]


async def test_of_doomed_namespaces_only_late_files_are_told(lab: FsckLab) -> None:
    """One waits for its purge, one is purged, and to one that is purged a file came later."""
    gone = Namespace(RepositoryId("gone"), "", is_final=True, doom_time_us=1)
    purged = replace(gone, purge_begin_us=2, purge_end_us=3)
    for number, row in enumerate((gone, purged, purged)):
        place, uid = f"mem://doomed{number}", f"0190000000007000800000000000000{number}"
        await lab.blocks.put(BlockKey(place, f"_tarn/purge/{number}.parquet"), b"report")
        held = encode_namespace(replace(row, instance_uid=uid))
        await lab.set(lab.installation.graveler, lab.installation.namespace(place), held)
    for place in ("mem://doomed0", "mem://doomed2"):
        await lab.blocks.put(BlockKey(place, physical_path(lab.ids.uuid7())), b"data")
    assert await lab.check() == [("namespace-orphan", "mem://doomed2")]


async def test_an_erased_block_is_no_damage_and_one_that_is_there_is_a_finding(
    lab: FsckLab,
) -> None:
    gone, there = await lab.put("gone"), await lab.put("there")
    await lab.commit()
    await lab.remove_block(gone)
    await lab.remove_block(there)
    assert len(await lab.check()) == 2, "without rows they are lost"
    lab.lake.clock.advance(86_400)
    addresses = [bytes.fromhex(block.rpartition("/")[2]) for block in (gone, there)]
    await lab.lake.graveler.erased.erase(lab.lake.repository, addresses, "ab" * 16)
    files = ("plan.json", "outcomes-1.parquet")
    for name in files:
        key = BlockKey(lab.namespace, f"_tarn/erased/{'ab' * 16}/{name}")
        await lab.blocks.put(key, b"x")
    assert await lab.check(state="two") == []
    await lab.blocks.put(BlockKey(lab.namespace, there), b"again")
    found = await lab.check(state="three")
    assert ("block-erased", there) in found
    assert "ab" * 16 in lab.details[0]


@pytest.mark.parametrize("body", [b"[" * 60_000, b'"' + b"x" * (64 << 10) + b'"'])
async def test_a_note_that_is_too_deep_or_too_long_is_a_finding(lab: FsckLab, body: bytes) -> None:
    await lab.put("a")
    await lab.commit()
    note = max(await lab.listed("_tarn/refs/"))
    await lab.replace_block(note, body)
    assert await lab.check() == [("note-invalid", note)]


async def test_a_commit_object_that_is_too_long_is_a_finding(lab: FsckLab) -> None:
    await lab.put("a")
    made = await lab.commit()
    await lab.replace_block(f"_tarn/commits/{made.commit_id}.json", b" " * ((1 << 20) + 1))
    assert await lab.check() == [("commit-object-damaged", f"commit {made.commit_id}")]

"""Dumps of a repository, as the command line makes them, over graveler's real services."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from dumped_lake import begin, commit, dump, fill, lines, opened, restore, shown, transfer
from graveler_service import Service, reason_of, running_service

from tarn.core.errors import Kind, Reason, TarnError
from tarn.snapshot.files.content import content_file
from tarn.snapshot.files.target import FolderTarget
from tarn.snapshot.records import LINES
from tarn.snapshot.repository.dumping import own_folder


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path) as made:
        yield made


async def test_a_dump_beside_writers_restores_what_the_refs_were_when_they_were_read(
    service: Service, tmp_path: Path
) -> None:
    """Later entries of reflogs, later commits and later branches are left out."""
    await fill(service)
    before = await shown(service)
    begun = await begin(service, tmp_path / "lake")
    work, count = transfer(service, page_size=2), 0
    while not begun.is_complete:
        await work.dump_page("lake", begun)
        count += 1
        # After each page, each branch moves on, so that later sections hold what the branches do not.
        await commit(service, "main", f"later-{count}", count)
        await commit(service, "dev", f"later-{count}", count)
    await begun.finish()
    await service.graveler.delete_repository(service.admin, "lake")
    await restore(service, tmp_path / "lake")
    heads = (await shown(service))["heads"]
    assert heads["dev"] == before["heads"]["dev"], "dev was on the first page"
    newest = (await service.graveler.list_reflog(service.admin, "lake", "dev")).entries
    assert newest[0].old_commit_id == heads["dev"], "no entry between the head and the restore"
    for branch in ("main", "dev"):
        found = await service.graveler.list_commits(service.admin, "lake", branch)
        assert found.commits[-1].generation == 0, "the whole history is there"


async def rewritten(service: Service, path: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Writes a dump of those lines that `keep` accepts."""
    whole = path.with_name("all")
    await dump(service, whole)
    (dumped,) = (await opened(service, whole)).manifest.repositories
    found = [line for kind in LINES for line in await lines(service, whole, kind)]
    begun = await begin(service, path)
    await begun.append([line for line in found if keep(json.loads(line))], dumped, "")
    await begun.finish()


async def test_a_commit_without_all_of_its_ancestors_is_left_out(
    service: Service, tmp_path: Path
) -> None:
    """Its parent was made after the page that would hold it was read, and itself before its own page."""
    await service.graveler.create_branch(service.admin, "lake", "late", "main")
    parent = await commit(service, "late", "a", 1)
    child = await commit(service, "late", "a", 2)
    await fill(service)
    await rewritten(
        service,
        tmp_path / "lake",
        lambda line: line.get("branch_id") != "late" and line.get("commit_id") != parent,
    )
    await service.graveler.delete_repository(service.admin, "lake")
    done = await restore(service, tmp_path / "lake")
    assert done.left_out == 1
    for ref in (parent, child):
        work = service.graveler.get_commit(service.admin, "lake", ref)
        assert await reason_of(work) in (Reason.REF_NOT_FOUND, Reason.COMMIT_NOT_FOUND)


async def test_an_interrupted_dump_continues_after_its_last_whole_page(
    service: Service, tmp_path: Path
) -> None:
    await fill(service)
    await dump(service, tmp_path / "whole")
    path, pages = tmp_path / "lake", 0
    while True:
        begun = await begin(service, path)
        if begun.is_complete:
            break
        before = begun.page_token
        await transfer(service, page_size=2).dump_page("lake", begun)
        pages += 1
        assert begun.page_token != before
        # A page whose file was not written any more.
        (folder,) = (path / "repository").iterdir()
        (folder / f".draft-1-page-{pages:08d}.json").write_bytes(b"half")
    assert pages > 6
    await begun.finish()
    for kind in LINES:
        assert await lines(service, path, kind) == await lines(service, tmp_path / "whole", kind)
    left = [each.name for each in folder.iterdir() if not each.name.startswith(".draft-")]
    assert left == ["manifest.json"]
    files = [each for each in path.rglob("*.*") if not each.name.startswith(".draft-")]
    assert {each.stat().st_mode & 0o777 for each in files} == {0o600}


async def test_pages_of_two_processes_are_not_mixed(service: Service, tmp_path: Path) -> None:
    """Both continue one dump. A page that does not begin where the one before it ended is not taken."""
    await fill(service)
    path = tmp_path / "lake"
    first, second = await begin(service, path), await begin(service, path)
    await transfer(service, page_size=4).dump_page("lake", second)
    await transfer(service, page_size=4).dump_page("lake", second)
    await transfer(service, page_size=1).dump_page("lake", first)  # replaces the first page
    begun = await begin(service, path)
    assert begun.page_token == first.page_token
    await transfer(service, page_size=3).dump("lake", begun)
    begun = await begin(service, path)
    assert begun.is_complete
    await begun.finish()
    await dump(service, tmp_path / "whole")
    for kind in LINES:
        assert await lines(service, path, kind) == await lines(service, tmp_path / "whole", kind)


async def test_a_dump_that_lost_a_chunk_reads_it_again(service: Service, tmp_path: Path) -> None:
    """A prune of backups in the same place removes chunks of a dump that lies still for a day."""
    await fill(service)
    path = tmp_path / "lake"
    begun = await begin(service, path)
    await transfer(service, page_size=2).dump("lake", begun)
    for chunk in sorted((path / "content").rglob("*.zst"))[:3]:
        chunk.unlink()
    begun = await begin(service, path)
    assert not begun.is_complete
    await transfer(service, page_size=2).dump("lake", begun)
    await begun.finish()
    assert (await opened(service, path)).manifest.rows > 6


async def test_a_dump_does_not_continue_one_of_another_life_of_the_repository(
    service: Service, tmp_path: Path
) -> None:
    await fill(service)
    begun = await begin(service, tmp_path / "lake")
    await transfer(service, page_size=2).dump_page("lake", begun)
    await service.graveler.delete_repository(service.admin, "lake")
    await service.graveler.create_repository(service.admin, "lake")
    assert await reason_of(transfer(service).dump("lake", begun)) is Reason.INVALID_PAGE_TOKEN
    again = await begin(service, tmp_path / "lake")
    assert await reason_of(transfer(service).dump("lake", again)) is Reason.INVALID_PAGE_TOKEN
    await transfer(service).dump("lake", await begin(service, tmp_path / "lake", restart=True))


async def test_a_dump_of_a_repository_that_another_replica_deletes_ends_as_not_found(
    service: Service, tmp_path: Path
) -> None:
    """Its partitions are emptied, so pages would look like those of a repository without commits."""
    await fill(service)
    begun = await begin(service, tmp_path / "lake")
    await transfer(service, page_size=2).dump_page("lake", begun)
    async with service.another_replica() as other:
        await other.graveler.delete_repository(other.admin, "lake")
    assert await reason_of(transfer(service).dump("lake", begun)) is Reason.REPOSITORY_NOT_FOUND


async def test_a_later_dump_keeps_the_earlier_one_and_other_files_are_left_alone(
    service: Service, tmp_path: Path
) -> None:
    await fill(service)
    await dump(service, tmp_path / "lake")
    first = (await opened(service, tmp_path / "lake")).manifest
    await commit(service, "main", "later", 1)
    await dump(service, tmp_path / "lake")
    second = (await opened(service, tmp_path / "lake")).manifest
    assert first.snapshot_id < second.snapshot_id
    assert second.repositories[0].commits == first.repositories[0].commits + 1
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    with pytest.raises(TarnError, match="is not empty"):
        await dump(service, tmp_path / "mine")
    assert [each.name for each in (tmp_path / "mine").iterdir()] == ["file"]
    await service.graveler.create_repository(service.admin, "other")
    with pytest.raises(TarnError, match="has dumps of repository lake"):
        await begin(service, tmp_path / "lake", repository="other")


async def test_a_dump_with_any_byte_changed_is_refused(service: Service, tmp_path: Path) -> None:
    await fill(service)
    path = tmp_path / "lake"
    await dump(service, path)
    found = await opened(service, path)
    for file in [each for each in path.rglob("*.*") if each.is_file()]:
        good = file.read_bytes()
        for at in (0, len(good) // 2, len(good) - 2):
            bad = bytearray(good)
            bad[at] ^= 1
            file.write_bytes(bad)
            with pytest.raises(TarnError) as raised:
                await opened(service, path)
            assert raised.value.kind is Kind.CORRUPT, (file, at)
        file.write_bytes(good[: len(good) // 2])
        with pytest.raises(TarnError):
            await opened(service, path)
        file.write_bytes(good)
    (path / content_file(found.lines[0].digest)).unlink()
    with pytest.raises(TarnError, match="is missing"):
        await opened(service, path)


async def test_a_folder_of_another_user_or_behind_a_link_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner could lead each file of the dump elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TarnError, match="cannot be used"):
        own_folder(tmp_path / "a")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (tmp_path / "b").mkdir()
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    with pytest.raises(TarnError, match="another user"):
        own_folder(tmp_path / "b")
    monkeypatch.undo()
    own_folder(tmp_path / "b")
    for path in (tmp_path / "absent" / "c", tmp_path / "file"):
        (tmp_path / "file").write_text("mine")
        with pytest.raises(TarnError, match="cannot be used"):
            own_folder(path)


@pytest.mark.parametrize("page", [b"{", b"[]", b'{"repository": 1}', b"[" * 90_000, b"\xff"])
async def test_a_damaged_page_is_named_and_a_restart_discards_it(
    service: Service, tmp_path: Path, page: bytes
) -> None:
    path = tmp_path / "lake"
    begun = await begin(service, path)
    await transfer(service, page_size=1).dump_page("lake", begun)
    (file,) = path.rglob("page-*.json")
    file.write_bytes(page)
    with pytest.raises(TarnError, match=r"page-00000000.json is damaged") as raised:
        await begin(service, path)
    assert "--restart" in raised.value.message
    begun = await begin(service, path, restart=True)
    assert begun.page_token == ""
    assert [name async for name in FolderTarget(path).files("repository") if "page" in name] == []

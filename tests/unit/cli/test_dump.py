"""Dumps of a repository, as the command line makes them, over graveler's real services."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from dumped_lake import commit, dump, fill, restore, shown, transfer
from graveler_service import Service, reason_of, running_service

from tarn.core.errors import Kind, Reason, TarnError
from tarn.snapshot.repository.files import DumpFile, DumpFolder


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
    folder = DumpFolder(tmp_path / "lake.tar", "lake")
    work, count = transfer(service, page_size=2), 0
    while not folder.is_complete:
        await work.dump_page("lake", folder)
        count += 1
        # After each page, each branch moves on, so that later sections hold what the branches do not.
        await commit(service, "main", f"later-{count}", count)
        await commit(service, "dev", f"later-{count}", count)
    folder.finish(0)
    folder.close()
    await service.graveler.delete_repository(service.admin, "lake")
    await restore(service, tmp_path / "lake.tar")
    heads = (await shown(service))["heads"]
    assert heads["dev"] == before["heads"]["dev"], "dev was on the first page"
    newest = (await service.graveler.list_reflog(service.admin, "lake", "dev")).entries
    assert newest[0].old_commit_id == heads["dev"], "no entry between the head and the restore"
    for branch in ("main", "dev"):
        found = await service.graveler.list_commits(service.admin, "lake", branch)
        assert found.commits[-1].generation == 0, "the whole history is there"


async def rewritten(service: Service, path: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Writes a dump of those lines that `keep` accepts."""
    await dump(service, path.with_name("all.tar"))
    folder = DumpFolder(path, "lake")
    with DumpFile(path.with_name("all.tar")) as file:
        kinds = ("settings", "branch", "tag", "reflog", "commit")
        lines = [line for kind in kinds for line in file.lines(kind) if keep(json.loads(line))]
        folder.append(lines, file.dumped, "")
    folder.finish(0)
    folder.close()


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
        tmp_path / "lake.tar",
        lambda line: line.get("branch_id") != "late" and line.get("commit_id") != parent,
    )
    await service.graveler.delete_repository(service.admin, "lake")
    done = await restore(service, tmp_path / "lake.tar")
    assert done.left_out == 1
    for ref in (parent, child):
        work = service.graveler.get_commit(service.admin, "lake", ref)
        assert await reason_of(work) in (Reason.REF_NOT_FOUND, Reason.COMMIT_NOT_FOUND)


async def test_an_interrupted_dump_continues_after_its_last_whole_page(
    service: Service, tmp_path: Path
) -> None:
    await fill(service)
    await dump(service, tmp_path / "whole.tar")
    pages = 0
    while True:
        folder = DumpFolder(tmp_path / "lake.tar", "lake")
        if folder.is_complete:
            break
        await transfer(service, page_size=2).dump_page("lake", folder)
        pages += 1
        folder.close()
        # A page that was appended, but not recorded.
        for path in (tmp_path / "lake.tar.partial").glob("*.jsonl"):
            with path.open("a") as file:
                file.write('{"kind":"bra')
    assert pages > 6
    folder.finish(0)
    folder.close()
    for kind in ("settings", "branch", "tag", "reflog", "commit"):
        with DumpFile(tmp_path / "whole.tar") as whole, DumpFile(tmp_path / "lake.tar") as parts:
            assert list(parts.lines(kind)) == list(whole.lines(kind)), kind
    assert not (tmp_path / "lake.tar.partial").exists()
    assert (tmp_path / "lake.tar").stat().st_mode & 0o777 == 0o600


async def test_a_dump_does_not_continue_one_of_another_life_of_the_repository(
    service: Service, tmp_path: Path
) -> None:
    await fill(service)
    folder = DumpFolder(tmp_path / "lake.tar", "lake")
    await transfer(service, page_size=2).dump_page("lake", folder)
    await service.graveler.delete_repository(service.admin, "lake")
    await service.graveler.create_repository(service.admin, "lake")
    assert await reason_of(transfer(service).dump("lake", folder)) is Reason.INVALID_PAGE_TOKEN
    folder.close()
    await transfer(service).dump("lake", DumpFolder(tmp_path / "lake.tar", "lake", restart=True))


async def test_a_dump_of_a_repository_that_another_replica_deletes_ends_as_not_found(
    service: Service, tmp_path: Path
) -> None:
    """Its partitions are emptied, so pages would look like those of a repository without commits."""
    await fill(service)
    folder = DumpFolder(tmp_path / "lake.tar", "lake")
    await transfer(service, page_size=2).dump_page("lake", folder)
    async with service.another_replica() as other:
        await other.graveler.delete_repository(other.admin, "lake")
    assert await reason_of(transfer(service).dump("lake", folder)) is Reason.REPOSITORY_NOT_FOUND
    folder.close()


async def test_a_file_is_written_by_one_dump_and_never_replaced(
    service: Service, tmp_path: Path
) -> None:
    first = DumpFolder(tmp_path / "lake.tar", "lake")
    with pytest.raises(TarnError, match="another process"):
        DumpFolder(tmp_path / "lake.tar", "lake")
    await transfer(service).dump("lake", first)
    (tmp_path / "lake.tar").write_text("mine")
    with pytest.raises(TarnError, match="created meanwhile"):
        first.finish(0)
    first.close()
    with pytest.raises(TarnError, match="exists already"):
        DumpFolder(tmp_path / "lake.tar", "lake")
    assert (tmp_path / "lake.tar").read_text() == "mine"


async def test_a_dump_with_any_byte_changed_is_refused(service: Service, tmp_path: Path) -> None:
    await fill(service)
    await dump(service, tmp_path / "lake.tar")
    good = (tmp_path / "lake.tar").read_bytes()
    bad = tmp_path / "bad.tar"
    with DumpFile(tmp_path / "lake.tar") as file:
        contents = [file._tar.getmember(name) for name in file._tar.getnames()]
    for member in contents:
        for at in (0, member.size // 2, member.size - 1):
            changed = bytearray(good)
            changed[member.offset_data + at] ^= 1
            bad.write_bytes(changed)
            with pytest.raises(TarnError) as raised:
                DumpFile(bad)
            assert raised.value.kind is Kind.CORRUPT, (member.name, at)
    for size in (0, 100, len(good) // 2, contents[-1].offset_data - 512):
        bad.write_bytes(good[:size])
        with pytest.raises(TarnError):
            DumpFile(bad)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, "sparse"])
async def test_a_dump_whose_member_is_no_plain_file_is_refused(
    service: Service, tmp_path: Path, kind: bytes | str
) -> None:
    """A link leads to another member; a sparse file has any number of bytes in a small tar."""
    await fill(service)
    await dump(service, tmp_path / "lake.tar")
    with (
        tarfile.open(tmp_path / "lake.tar") as good,
        tarfile.open(tmp_path / "bad.tar", "w", format=tarfile.PAX_FORMAT) as bad,
    ):
        for info in good.getmembers():
            data = good.extractfile(info)
            if info.name == "tags.jsonl" and kind == "sparse":
                # One block of data; the rest is a hole.
                info.pax_headers = {
                    "GNU.sparse.map": f"0,{info.size}",
                    "GNU.sparse.size": str(info.size),
                }
            elif info.name == "tags.jsonl" and isinstance(kind, bytes):
                info.type, info.linkname, info.size = kind, "../../etc/passwd", 0
                bad.addfile(info)
                info.name, info.type, info.size = "../../etc/passwd", tarfile.REGTYPE, 1
                data = io.BytesIO(b"x")
            bad.addfile(info, data)
    with pytest.raises(TarnError, match=r"tags.jsonl is not a plain file"):
        DumpFile(tmp_path / "bad.tar")


async def test_a_folder_of_another_user_or_behind_a_link_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner could lead each file of the dump elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a.tar.partial").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TarnError, match="cannot be used"):
        DumpFolder(tmp_path / "a.tar", "lake")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (tmp_path / "b.tar.partial").mkdir()
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    with pytest.raises(TarnError, match="another user"):
        DumpFolder(tmp_path / "b.tar", "lake")
    monkeypatch.undo()
    DumpFolder(tmp_path / "b.tar", "lake").close()
    with pytest.raises(TarnError, match="cannot be used"):
        DumpFolder(tmp_path / "absent" / "c.tar", "lake")


async def test_a_damaged_state_is_named_and_a_restart_discards_it(
    service: Service, tmp_path: Path
) -> None:
    target = tmp_path / "lake.tar"
    folder = DumpFolder(target, "lake")
    await transfer(service, page_size=1).dump_page("lake", folder)
    folder.close()
    (tmp_path / "lake.tar.partial" / "state.json").write_text("{")
    with pytest.raises(TarnError, match=r"state.json is damaged") as raised:
        DumpFolder(target, "lake")
    assert "--restart" in raised.value.message
    folder = DumpFolder(target, "lake", restart=True)
    assert folder.page_token == ""
    folder.close()


def tar_of(path: Path, members: Sequence[tuple[str, bytes]], **headers: str) -> Path:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as out:
        for name, body in members:
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(body), headers
            out.addfile(info, io.BytesIO(body))
    return path


def test_a_tar_of_many_members_is_refused(tmp_path: Path) -> None:
    """Each takes half a kilobyte in the file, and more in memory."""
    path = tar_of(tmp_path / "many.tar", [(f"member-{number}", b"") for number in range(100)])
    with pytest.raises(TarnError, match="it has more than 64 members"):
        DumpFile(path)


@pytest.mark.parametrize("where", ["first", "second"])
def test_a_tar_with_a_long_header_is_refused_before_it_is_read(where: str, tmp_path: Path) -> None:
    members = [("manifest.json", b"{}")] if where == "second" else []
    path = tar_of(tmp_path / "long.tar", members)
    with tarfile.open(path, "a", format=tarfile.PAX_FORMAT) as out:
        out.addfile(tarfile.TarInfo("x" * 70_000))
    with pytest.raises(TarnError, match=r"a header of type b'x' has 7\d{4} bytes, more than 65536"):
        DumpFile(path)

"""Targets of backups that someone else filled."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from backup_lab import BackupLab

from tarn.core.errors import Kind, TarnError
from tarn.kv.port import Partition, PartitionKind
from tarn.snapshot.files.chunks import Chunker
from tarn.snapshot.files.content import (
    FILE_BYTES_MAX,
    content_file,
    digest_of_text,
    pack,
    write_content,
)
from tarn.snapshot.files.manifest import (
    INDEX_LINES_MAX,
    Scope,
    decode_index,
    encode_index,
    manifest_file,
)
from tarn.snapshot.files.ranges import Range
from tarn.snapshot.files.stored import check_files, open_snapshot, snapshot_ids
from tarn.snapshot.files.target import FolderTarget

LINE = Range(Partition("test/a", PartitionKind.PLAIN), b"", None, 1, 2, "0" * 64)


def test_an_index_of_too_many_or_too_long_lines_is_refused() -> None:
    (text,) = encode_index([LINE] * INDEX_LINES_MAX)
    assert len(decode_index(text, "i")) == INDEX_LINES_MAX
    for wrong in (text + text[: text.index(b"\n") + 1], b"[" + b"[]," * 50_000 + b"[]]"):
        assert len(pack(wrong)) < 64 << 10
        with pytest.raises(
            TarnError, match=r"i cannot be read: .*more than 10000 lines, or one of more"
        ) as caught:
            decode_index(wrong, "i")
        assert caught.value.kind is Kind.CORRUPT


async def test_a_manifest_that_names_a_text_of_the_index_twice_is_refused(lab: BackupLab) -> None:
    """Each mention costs 70 bytes in the file, and 10,000 lines in memory."""
    made = await lab.back_up()
    name = manifest_file(Scope.INSTALLATION, made.snapshot_id)
    await lab.target.put(name, replace(made, index=made.index * 2, chunks=1 << 40).encode())
    with pytest.raises(TarnError, match="named again and again") as caught:
        await open_snapshot(lab.target, Scope.INSTALLATION)
    assert caught.value.kind is Kind.CORRUPT


async def test_a_chunk_that_is_a_link_or_a_pipe_or_too_long_is_damaged(lab: BackupLab) -> None:
    await lab.put("a", 1)
    await lab.back_up()
    backup = await open_snapshot(lab.target, Scope.INSTALLATION)
    names = [content_file(line.digest) for line in backup.lines]
    assert len(names) >= 3
    link, pipe, long = (lab.target_path / name for name in names[:3])
    link.rename(lab.target_path / "elsewhere")
    link.symlink_to(lab.target_path / "elsewhere")
    pipe.unlink()
    os.mkfifo(pipe)
    with long.open("ab") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    found = await check_files(backup, lab.options())
    assert len(found) == 3
    told = "\n".join(found)
    assert f"{link} is or lies behind a symbolic link" in told
    assert f"{pipe} is not a plain file" in told
    assert f"{long} has more than {FILE_BYTES_MAX} bytes" in told
    # The next backup writes them again, and never through the link.
    assert not await lab.target.has(names[0])
    assert not await lab.target.has(names[1])


async def test_folders_behind_links_are_not_listed_or_read(tmp_path: Path) -> None:
    target = FolderTarget(tmp_path / "target")
    await target.put("store/a/manifest.json", b"{}")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_bytes(b"secret")
    (tmp_path / "target" / "store" / "b").symlink_to(tmp_path / "other")
    (tmp_path / "target" / "store" / "a" / "link.json").symlink_to(
        tmp_path / "other" / "manifest.json"
    )
    assert [name async for name in target.files("store")] == ["store/a/manifest.json"]
    with pytest.raises(TarnError) as caught:
        await target.read("store/b/manifest.json", 100)
    assert caught.value.kind is Kind.CORRUPT


@pytest.mark.parametrize("name", ["other/auth", "test2/auth", "test", "test/fence", "/auth", ""])
async def test_a_backup_never_writes_to_another_installation_or_the_fence(
    name: str, lab: BackupLab
) -> None:
    """Several installations share a cluster. The digests agree: the same person made all of the files."""
    await lab.put("a", 1)
    await lab.back_up()
    (backup_id,) = await snapshot_ids(lab.target, Scope.INSTALLATION)
    backup = await open_snapshot(lab.target, Scope.INSTALLATION)
    chunker = Chunker(Partition(name, PartitionKind.PLAIN))
    chunker.add(b"k", b"v")
    chunk = chunker.finish()
    lines = [*backup.lines, chunk.range]
    (index,) = encode_index(lines)
    for text in (chunk.text, index):
        await write_content(lab.target, text, digest_of_text(text))
    rows = backup.manifest.rows + 1
    forged = replace(backup.manifest, index=(digest_of_text(index),), chunks=len(lines), rows=rows)
    name = manifest_file(Scope.INSTALLATION, backup_id)
    await lab.target.put(name, forged.encode())
    with pytest.raises(TarnError, match="no transfer of installation 'test' writes") as caught:
        await lab.restored()
    assert caught.value.kind is Kind.CORRUPT

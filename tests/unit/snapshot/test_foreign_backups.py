"""Targets of backups that someone else filled."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
from backup_lab import BackupLab

from tarn.core.errors import Kind, TarnError
from tarn.kv.port import Partition, PartitionKind
from tarn.snapshot.files.chunks import FILE_BYTES_MAX, Chunker, chunk_file, pack
from tarn.snapshot.files.manifest import (
    INDEX_LINES_MAX,
    IndexFile,
    decode_index,
    encode_index,
    index_file,
    manifest_file,
)
from tarn.snapshot.files.ranges import Range
from tarn.snapshot.files.stored import backup_ids, check_files, open_backup
from tarn.snapshot.files.target import FolderTarget

LINE = Range(Partition("test/a", PartitionKind.PLAIN), b"", None, 1, 2, "0" * 64)


def test_an_index_of_too_many_or_too_long_lines_is_refused() -> None:
    assert len(decode_index(encode_index([LINE] * INDEX_LINES_MAX), "i")) == INDEX_LINES_MAX
    for text in (
        encode_index([LINE] * (INDEX_LINES_MAX + 1)),
        pack(b"[" + b"[]," * 50_000 + b"[]]"),
    ):
        assert len(text) < 64 << 10
        with pytest.raises(
            TarnError, match=r"i cannot be read: .*more than 10000 lines, or one of more"
        ) as caught:
            decode_index(text, "i")
        assert caught.value.kind is Kind.CORRUPT


async def test_a_chunk_that_is_a_link_or_a_pipe_or_too_long_is_damaged(lab: BackupLab) -> None:
    await lab.put("a", 1)
    await lab.back_up()
    backup = await open_backup(lab.target)
    names = [chunk_file(line.digest) for line in backup.lines]
    assert len(names) >= 3
    link, pipe, long = (lab.target_path / name for name in names[:3])
    link.rename(lab.target_path / "elsewhere")
    link.symlink_to(lab.target_path / "elsewhere")
    pipe.unlink()
    os.mkfifo(pipe)
    with long.open("ab") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    found = await check_files(backup, 2)
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
    await target.put("backups/a/manifest.json", b"{}")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_bytes(b"secret")
    (tmp_path / "target" / "backups" / "b").symlink_to(tmp_path / "other")
    (tmp_path / "target" / "backups" / "a" / "link.json").symlink_to(
        tmp_path / "other" / "manifest.json"
    )
    assert [name async for name in target.files("backups")] == ["backups/a/manifest.json"]
    with pytest.raises(TarnError) as caught:
        await target.read("backups/b/manifest.json", 100)
    assert caught.value.kind is Kind.CORRUPT


@pytest.mark.parametrize("name", ["other/auth", "test2/auth", "test", "test/fence", "/auth", ""])
async def test_a_backup_never_writes_to_another_installation_or_the_fence(
    name: str, lab: BackupLab
) -> None:
    """Several installations share a cluster. The digests agree: the same person made all of the files."""
    await lab.put("a", 1)
    await lab.back_up()
    (backup_id,) = await backup_ids(lab.target)
    backup = await open_backup(lab.target)
    chunker = Chunker(Partition(name, PartitionKind.PLAIN))
    chunker.add(b"k", b"v")
    chunk = chunker.finish()
    assert chunk is not None
    await lab.target.put(chunk_file(chunk.range.digest), pack(chunk.text))
    lines = [*backup.lines, chunk.range]
    index = encode_index(lines)
    await lab.target.put(index_file(backup_id, 1), index)
    files = (IndexFile(index_file(backup_id, 1), hashlib.sha256(index).hexdigest()),)
    rows = backup.manifest.rows + 1
    forged = replace(backup.manifest, index=files, chunks=len(lines), rows=rows)
    await lab.target.put(manifest_file(backup_id), forged.encode())
    with pytest.raises(TarnError, match="no transfer of installation 'test' writes") as caught:
        await lab.restored()
    assert caught.value.kind is Kind.CORRUPT

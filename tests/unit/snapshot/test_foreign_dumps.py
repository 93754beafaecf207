"""Folders of dumps that someone else made: links, devices, and files that become large."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tarn.core.errors import Kind, TarnError
from tarn.kv.port import Partition, PartitionKind
from tarn.snapshot.files import ranges
from tarn.snapshot.files.plain_files import read_plain
from tarn.snapshot.store.dump_folder import read_dump
from tarn.snapshot.store.dump_format import Finished, IndexHeader, Part
from tarn.snapshot.store.parts import read_part

PARTITION = Partition("test/a", PartitionKind.PLAIN)
NAME = "00000001.parquet"


def refused(root: Path, name: str, most: int = 100) -> str:
    with pytest.raises(TarnError) as caught:
        read_plain(root, name, most)
    assert caught.value.kind is Kind.CORRUPT
    return caught.value.message


def test_plain_files_are_read_up_to_their_bound(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a").write_bytes(b"x" * 100)
    assert read_plain(tmp_path, "parts/a", 100) == b"x" * 100
    message = refused(tmp_path, "parts/a", 99)
    assert f"{tmp_path}/parts/a has more than 99 bytes" in message
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path, "parts/b", 100)
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path, "other/a", 100)


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")
    assert read_plain(tmp_path / "link", "a", 1) == b"x"


def test_nothing_behind_a_link_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_bytes(b"key")
    root = tmp_path / "dump"
    root.mkdir()
    (root / "file").symlink_to("../secret/key")
    (root / "gone").symlink_to("../nothing")
    (root / "parts").symlink_to("../secret")
    assert "symbolic link" in refused(root, "file")
    assert "symbolic link" in refused(root, "gone")
    refused(root, "parts/key")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../secret/key", "a//b", "a/../b", "/etc/passwd", "a/"]
)
def test_names_that_lead_elsewhere_are_refused(name: str, tmp_path: Path) -> None:
    assert "names no file" in refused(tmp_path, name)


def test_pipes_and_folders_are_refused_at_once(tmp_path: Path) -> None:
    """Opening a pipe would wait for a writer."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    assert "not a plain file" in refused(tmp_path, "pipe")
    refused(tmp_path, "folder")
    refused(tmp_path, "pipe/a")


def part_of(folder: Path, table: pa.Table, rows: int, size_bytes: int, **options: object) -> Part:
    path = folder / "parts" / NAME
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path, **options)
    found = ranges.Range(PARTITION, b"", None, rows, size_bytes, "0" * 64)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Part(NAME, path.stat().st_size, sha256, (found,))


@pytest.mark.parametrize("claimed", [10_000, 1 << 50])
def test_a_part_that_becomes_large_is_refused(claimed: int, tmp_path: Path) -> None:
    """The same person wrote the index, so neither its digest nor its sizes say anything."""
    rows = 8192
    indices = pa.array([0] * 4096 + [1] * 4096, pa.int32())
    values = pa.DictionaryArray.from_arrays(indices, pa.array([b"s", b"v" * 600_000]))
    keys = pa.array([b"%06d" % row for row in range(rows)])
    names = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["test/a"]))
    table = pa.table({"partition": names, "key": keys, "value": values})
    part = part_of(
        tmp_path,
        table,
        rows,
        claimed,
        store_schema=False,
        dictionary_pagesize_limit=1 << 30,
        compression="zstd",
    )
    assert part.size_bytes < 64 << 10
    peaks = pa.total_allocated_bytes()
    with pytest.raises(TarnError) as caught:
        list(read_part(tmp_path, part))
    assert caught.value.kind is Kind.CORRUPT
    assert NAME in caught.value.message
    assert pa.total_allocated_bytes() - peaks < 300 << 20


def test_a_part_of_more_rows_than_the_index_says_is_refused(tmp_path: Path) -> None:
    keys = pa.array([b"%06d" % row for row in range(50)])
    table = pa.table(
        {"partition": pa.array(["a"] * 50).dictionary_encode(), "key": keys, "value": keys}
    )
    with pytest.raises(TarnError, match="50 rows in 1 groups, more than 49 rows"):
        list(read_part(tmp_path, part_of(tmp_path, table, 49, 600)))


def finished(folder: Path, lines: list[bytes], parts: int) -> None:
    begun = IndexHeader("id", "test", 1)
    index = b"".join([begun.encode(), *lines])
    (folder / "index.jsonl").write_bytes(index)
    digest = hashlib.sha256(index).hexdigest()
    manifest = Finished(begun, 2, parts, 1, 1, 1, digest)
    (folder / "manifest.json").write_bytes(manifest.encode())


def test_an_index_of_other_parts_than_the_manifest_says_is_refused(tmp_path: Path) -> None:
    part = Part(NAME, 1, "0" * 64, ())
    finished(tmp_path, [part.encode()] * 2, 2)
    assert len(read_dump(tmp_path).parts) == 2
    finished(tmp_path, [part.encode()] * 3, 2)
    with pytest.raises(TarnError, match="has 3 parts, the manifest 2") as caught:
        read_dump(tmp_path)
    assert caught.value.kind is Kind.CORRUPT


def test_a_line_that_becomes_many_objects_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    line = json.dumps({"part": NAME, "size_bytes": 1, "sha256": "", "ranges": []}).encode()
    long = line[:-2] + b"[]," * 6_000_000 + b"[]]}\n"
    finished(tmp_path, [long], 1)
    with pytest.raises(TarnError, match=r"bytes, more than 16777216") as caught:
        read_dump(tmp_path)
    assert caught.value.kind is Kind.CORRUPT


@pytest.mark.parametrize("name", ["manifest.json", "index.jsonl"])
def test_a_dump_whose_files_are_links_is_refused(name: str, tmp_path: Path) -> None:
    finished(tmp_path, [], 0)
    (tmp_path / name).rename(tmp_path / "elsewhere")
    (tmp_path / name).symlink_to("elsewhere")
    with pytest.raises(TarnError, match="symbolic link"):
        read_dump(tmp_path)

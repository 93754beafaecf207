"""A day's work with `lakefs-spec`, a file system of fsspec over the peer's library."""

from __future__ import annotations

from pathlib import Path

import fsspec
import lakefs
import pandas as pd  # type: ignore[import-untyped]
import pytest
from lakefs_spec import LakeFSFileSystem
from rest_clients import now
from rest_server import RestServer


@pytest.fixture
def options(lake_server: RestServer, presigned: bool) -> dict[str, object]:
    return {
        "host": lake_server.url,
        "username": lake_server.access_key_id,
        "password": lake_server.secret_access_key,
        "pre_sign": presigned,
        "skip_instance_cache": True,
    }


@pytest.fixture
def fs(options: dict[str, object]) -> LakeFSFileSystem:
    return LakeFSFileSystem(**options)


@pytest.mark.uses("copyObject")
def test_files(fs: LakeFSFileSystem, main: lakefs.Branch, tmp_path: Path) -> None:
    root = f"lakefs://{main.repo_id}/main"
    fs.pipe_file(f"{root}/in/a", b"0123456789")
    assert fs.cat_file(f"{root}/in/a") == b"0123456789"
    assert fs.cat_file(f"{root}/in/a", start=2, end=5) == b"234"
    assert fs.tail(f"{root}/in/a", 3) == b"789"
    info = fs.info(f"{root}/in/a")
    assert (info["type"], info["size"], len(info["checksum"])) == ("file", 10, 32)
    assert info["name"] == f"{main.repo_id}/main/in/a"
    assert abs(fs.modified(f"{root}/in/a").timestamp() - now()) < 600
    assert fs.info(f"{root}/in/")["type"] == "directory"
    with fs.open(f"{root}/in/text", "w") as file:
        file.write("one\ntwo\n")
    with fs.open(f"{root}/in/text", "r") as file:
        assert list(file) == ["one\n", "two\n"]
    local = tmp_path / "local"
    local.write_bytes(b"x" * 100_000)
    fs.put_file(str(local), f"{root}/in/put")
    fs.put_file(str(local), f"{root}/in/put")
    with pytest.raises(FileExistsError):
        fs.put_file(str(local), f"{root}/in/put", mode="create")
    fs.get_file(f"{root}/in/put", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == local.read_bytes()
    fs.cp_file(f"{root}/in/put", f"{root}/out/put")
    assert fs.checksum(f"{root}/out/put") == fs.checksum(f"{root}/in/put")
    assert fs.ls(f"{root}/", detail=False) == [
        f"{main.repo_id}/main/{name}" for name in ("in/", "out/", "raw/", "z")
    ]
    found = fs.find(f"{root}/in", refresh=True)
    assert found == [f"{main.repo_id}/main/in/{name}" for name in ("a", "put", "text")]
    fs.rm_file(f"{root}/in/a")
    fs.rm(f"{root}/in/", recursive=True)
    assert not fs.exists(f"{root}/in/put")
    assert fs.exists(f"{root}/out/put")


@pytest.mark.uses("copyObject")
def test_what_is_not_there_is_not_found(fs: LakeFSFileSystem, main: lakefs.Branch) -> None:
    root = f"lakefs://{main.repo_id}"
    assert not fs.exists(f"{root}/main/nothing")
    assert not fs.exists(f"{root}/nobody-knows-it/a")
    assert not fs.exists("lakefs://nobody-knows-it/main/a")
    assert fs.exists(f"{root}/main/")
    assert fs.exists(f"{root}/main/raw")
    for path in ("main/nothing", "nobody-knows-it/a"):
        with pytest.raises(FileNotFoundError):
            fs.info(f"{root}/{path}")
        with pytest.raises(FileNotFoundError):
            fs.cat_file(f"{root}/{path}")
    with pytest.raises(FileNotFoundError):
        fs.cp_file(f"{root}/main/nothing", f"{root}/main/copy")


def test_a_stranger_is_refused(options: dict[str, object], main: lakefs.Branch) -> None:
    stranger = LakeFSFileSystem(**{**options, "password": "wrong" * 8})
    for call in (stranger.exists, stranger.info, stranger.cat_file):
        with pytest.raises(PermissionError):
            call(f"lakefs://{main.repo_id}/main/z")


def test_a_branch_is_made_by_the_first_write(fs: LakeFSFileSystem, main: lakefs.Branch) -> None:
    fs.pipe_file(f"lakefs://{main.repo_id}/made-now/a", b"1")
    made = lakefs.Branch(main.repo_id, "made-now", fs.client)
    assert made.head.id == main.head.id
    assert [each.path for each in made.uncommitted()] == ["a"]


def test_a_transaction(fs: LakeFSFileSystem, main: lakefs.Branch) -> None:
    repository = main.repo_id
    with fs.transaction(repository, "main") as tx:
        fs.pipe_file(f"lakefs://{repository}/{tx.branch.id}/t", b"1")
        commit = tx.commit("work", metadata={"job": "7"})
        tx.tag(commit, "work-7")
        assert tx.rev_parse("work-7").message == "work"
        assert not fs.exists(f"lakefs://{repository}/main/t")
    assert fs.cat_file(f"lakefs://{repository}/main/t") == b"1"
    with fs.transaction(repository, "main", automerge=False) as tx:
        fs.pipe_file(f"lakefs://{repository}/{tx.branch.id}/t", b"2")
        tx.commit("mistake")
        wrong = tx.branch.head
        assert wrong.id in tx.revert(tx.branch, wrong).message
        merged = tx.merge(tx.branch, "main")
        assert merged.id == lakefs.Branch(repository, "main", fs.client).head.id
    assert fs.cat_file(f"lakefs://{repository}/main/t") == b"1"
    with pytest.raises(ValueError, match="does not exist"):
        fs.transaction("nobody-knows-it")


def test_pandas_reads_and_writes_addresses(options: dict[str, object], main: lakefs.Branch) -> None:
    frame = pd.DataFrame({"n": range(1000), "s": [f"row {n}" for n in range(1000)]})
    address = f"lakefs://{main.repo_id}/main/frames/f"
    frame.to_parquet(f"{address}.parquet", storage_options=options)
    back = pd.read_parquet(f"{address}.parquet", storage_options=options, columns=["n"])
    assert back["n"].tolist() == list(range(1000))
    frame.to_csv(f"{address}.csv", index=False, storage_options=options)
    assert pd.read_csv(f"{address}.csv", storage_options=options).equals(frame)
    with fsspec.open(f"lakefs://{main.repo_id}/main/raw/a", **options) as file:
        assert file.read() == b"raw/a"

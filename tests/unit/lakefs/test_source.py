"""Where lakeFS keeps its files: a folder, or a bucket of a real S3 server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.s3_server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, S3Server

from tarn.core.errors import Kind, TarnError
from tarn.lakefs.source import FolderSource, Source, opened_source

BODY = b"0123456789" * 300_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3"), ("lakefs", "other")) as server:
        yield server


@pytest.fixture(params=["folder", "bucket"])
def source(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Source:
    """A namespace with `a`, `empty` and `data/ü b`; beside it `outside`, and in another bucket `other/raw/x`."""
    if request.param == "folder":
        (tmp_path / "ns" / "data").mkdir(parents=True)
        (tmp_path / "ns" / "a").write_bytes(BODY)
        (tmp_path / "ns" / "data" / "ü b").write_bytes(b"b")
        (tmp_path / "ns" / "empty").touch()
        (tmp_path / "outside").write_bytes(b"secret")
        return opened_source(str(tmp_path / "ns"))
    server: S3Server = request.getfixturevalue("server")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    found = opened_source("s3://lakefs/ns/", endpoint=server.endpoint, allowed=("s3://other/raw/",))
    client: Any = found._client  # type: ignore[attr-defined]
    client.put_object(Bucket="lakefs", Key="ns/a", Body=BODY)
    client.put_object(Bucket="lakefs", Key="ns/data/ü b", Body=b"b")
    client.put_object(Bucket="lakefs", Key="ns/empty", Body=b"")
    client.put_object(Bucket="lakefs", Key="outside", Body=b"secret")
    client.put_object(Bucket="other", Key="raw/x", Body=b"x")
    return found


async def whole(source: Source, address: str) -> bytes:
    return b"".join([chunk async for chunk in source.stream(address)])


async def test_files_are_read_whole_and_in_parts(source: Source) -> None:
    assert await source.size("a") == len(BODY)
    assert await source.read("a", 5, 7) == b"5678901"
    assert await source.read("a", len(BODY) - 3, 9) == b"789"
    assert await source.read("a", len(BODY), 9) == b""
    assert await source.read("empty", 0, 1) == await whole(source, "empty") == b""
    assert await whole(source, "a") == BODY
    assert await whole(source, "data/ü b") == b"b"


@pytest.mark.parametrize("address", ["nothing", "a/b", "data/"])
async def test_what_is_not_there_is_not_found(source: Source, address: str) -> None:
    for call in (source.size(address), source.read(address, 0, 1), whole(source, address)):
        with pytest.raises(TarnError) as caught:
            await call
        assert caught.value.kind is Kind.NOT_FOUND


async def test_only_the_namespace_is_read(source: Source) -> None:
    for address in ("../outside", "data/../../outside", "s3://lakefs/outside", "s3://other/raw2/x"):
        if isinstance(source, FolderSource) and address.startswith("s3://"):
            continue
        with pytest.raises(TarnError) as caught:
            await whole(source, address)
        assert caught.value.kind is Kind.DENIED


async def test_prefixes_that_the_caller_allows_are_read(source: Source) -> None:
    if not isinstance(source, FolderSource):
        assert await whole(source, "s3://other/raw/x") == b"x"
        assert await whole(source, "s3://lakefs/ns/a") == BODY


async def test_a_device_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TarnError) as caught:
        await FolderSource(tmp_path).size("pipe")
    assert caught.value.kind is Kind.NOT_FOUND


async def test_a_key_that_may_not_read_is_told_at_once(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    source = opened_source("s3://lakefs/ns", endpoint=server.endpoint)
    for call in (source.size("a"), whole(source, "a")):
        with pytest.raises(TarnError) as caught:
            await call
        assert caught.value.kind is Kind.DENIED


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(TarnError, match="there is no folder"):
        opened_source(str(tmp_path / "absent"))

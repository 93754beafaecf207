"""A complete Tarn whose blocks are in a bucket of a real S3 server."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from multipart_cases import CASES, SMALL_PARTS, an_object_of_ten_thousand_parts
from running_tarn import Place, RunningTarn, launch, set_up, stop, wait_until_up
from s3_stores import unfinished
from tests.support.faults.http_fault_proxy import Fault, FaultProfile
from tests.support.servers.s3_server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, S3Server

from tarn_cli.objects.direct import PART_BYTES

MIB = 1 << 20
CONFIG = """\
blockstore:
  type: s3
  default_namespace_prefix: s3://tarn/lakes
  s3:
    endpoint: {endpoint}
    force_path_style: true
    part_size: 5MiB
    credentials:
      access_key_id: {key}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def launched(folder: Path, server: S3Server, **variables: str) -> subprocess.Popen[bytes]:
    """Starts a Tarn in a folder."""
    config = folder / "tarn.yaml"
    config.write_text(CONFIG.format(endpoint=server.endpoint, key=ACCESS_KEY_ID))
    secret = {"TARN_BLOCKSTORE_S3_CREDENTIALS_ACCESS_SECRET_KEY": SECRET_ACCESS_KEY}
    options = ("--config", str(config), "--port", "0", "--rpc-port", "0", "--workers", "2")
    return launch(folder / "data", *options, environment={**secret, **variables})


@contextmanager
def running(folder: Path, server: S3Server, **variables: str) -> Iterator[RunningTarn]:
    """Starts a Tarn in a folder with its first admin, and stops it at the end."""
    supervisor = launched(folder, server, **variables)
    tarn = RunningTarn("single", folder / "data", folder / "credentials", supervisor)
    try:
        wait_until_up(tarn)
        set_up(tarn)
        yield tarn
    finally:
        stop(tarn)


def restart(tarn: RunningTarn, server: S3Server) -> None:
    """Restarts a Tarn without its caches: all later reads come from the bucket."""
    stop(tarn)
    shutil.rmtree(tarn.data / "cache")
    tarn.supervisor = launched(tarn.data.parent, server)
    wait_until_up(tarn)


@pytest.fixture(scope="module")
def on_s3(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTarn]:
    """A Tarn with its blocks in the bucket."""
    with running(tmp_path_factory.mktemp("tarn"), server) as tarn:
        yield tarn


def body_of(size: int) -> bytes:
    return bytes(range(256)) * (size // 256) + bytes(size % 256)


def read(s3: Any, bucket: str, key: str, **options: Any) -> bytes:
    return bytes(s3.get_object(Bucket=bucket, Key=key, **options)["Body"].read())


def upload_in_parts(s3: Any, bucket: str, key: str, sizes: list[int]) -> bytes:
    upload_id = s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    names = {"Bucket": bucket, "Key": key, "UploadId": upload_id}
    parts = []
    for number, size in enumerate(sizes, 1):
        etag = s3.upload_part(**names, PartNumber=number, Body=body_of(size))["ETag"]
        parts.append({"PartNumber": number, "ETag": etag})
    s3.complete_multipart_upload(**names, MultipartUpload={"Parts": parts})
    return b"".join(map(body_of, sizes))


def list_all(s3: Any, bucket: str, prefix: str) -> dict[str, int]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return {row["Key"]: row["Size"] for page in pages for row in page.get("Contents", [])}


def upload_directly(
    tarn: RunningTarn, folder: Path, server: S3Server, lake: str
) -> dict[str, bytes]:
    """Writes files to the bucket by presigned URLs, by one PUT and in parts."""
    decide, server.proxy.decide = server.proxy.decide, None
    bodies = {"direct/small": b"past the endpoint", "direct/parts": body_of(PART_BYTES + 7 * MIB)}
    for path, body in bodies.items():
        file = folder / path.rpartition("/")[2]
        file.write_bytes(body)
        server.proxy.clear()
        tarn.ok(
            "fs", "upload", "--direct", "--content-type", "text/x", str(file), f"{lake}/main/{path}"
        )
        sent = [
            target
            for method, target, _ in server.proxy.seen
            if method == "PUT" and "X-Amz-Signature" in target
        ]
        assert len(sent) == (2 if "parts" in path else 1)
        file.unlink()
    s3 = tarn.s3()
    head = s3.head_object(Bucket=lake, Key="main/direct/parts")
    assert head["ETag"].endswith('-2"')
    assert head["ContentType"] == "text/x"
    s3.close()
    server.proxy.decide = decide
    return bodies


@pytest.mark.parametrize("case", CASES)
def test_uploads_with_blocks_in_a_bucket(on_s3: RunningTarn, server: S3Server, case: str) -> None:
    CASES[case](on_s3, Place(on_s3.new_repository(), "main/"))
    assert unfinished(server, "lakes/") == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ten_thousand_parts_become_an_object(tmp_path: Path, server: S3Server) -> None:
    with running(tmp_path, server, PYTHONPATH=str(SMALL_PARTS)) as tarn:
        an_object_of_ten_thousand_parts(tarn, Place(tarn.new_repository(), "main/"))
    assert unfinished(server, "lakes/") == []


@pytest.mark.timeout(400)
def test_a_lake_lives_in_a_bucket_and_survives_a_restart(
    on_s3: RunningTarn, tmp_path: Path, server: S3Server
) -> None:
    faults = FaultProfile(1, 0.02, (Fault.SLOW_DOWN, Fault.LOST_REPLY, Fault.LOST_REQUEST))
    server.proxy.decide = faults
    try:
        lake = on_s3.new_repository()
        s3 = on_s3.s3()
        bodies = {"small": b"x", "empty": b"", "large": body_of(11 * MIB)}
        for path, body in bodies.items():
            s3.put_object(Bucket=lake, Key=f"main/{path}", Body=body)
        server.proxy.clear()
        sizes = [5 * MIB, 5 * MIB, 1000]
        bodies["parts"] = upload_in_parts(s3, lake, "main/parts", sizes)
        # The parts of 5 MiB were forwarded, each once except for those that a fault hit.
        sent = {target for _, target, _ in server.proxy.seen if "partNumber=" in target}
        assert sorted(target.rpartition("partNumber=")[2] for target in sent) == ["1", "2", "3"]
        bodies |= upload_directly(on_s3, tmp_path, server, lake)
        commit = on_s3.ok("--json", "commit", f"{lake}/main", "-m", "first").json["commit"]
        s3.put_object(Bucket=lake, Key="main/small", Body=b"changed")
        s3.delete_object(Bucket=lake, Key="main/large")
        s3.close()
        restart(on_s3, server)
        s3 = on_s3.s3()
        assert list_all(s3, lake, f"{commit}/") == {
            f"{commit}/{path}": len(body) for path, body in bodies.items()
        }
        for path, body in bodies.items():
            assert read(s3, lake, f"{commit}/{path}") == body
        middle = read(s3, lake, f"{commit}/parts", Range=f"bytes={5 * MIB - 10}-{10 * MIB + 9}")
        assert middle == bodies["parts"][5 * MIB - 10 : 10 * MIB + 10]
        assert read(s3, lake, "main/small") == b"changed"
        assert "main/large" not in list_all(s3, lake, "main/")
        s3.close()
    finally:
        server.proxy.decide = None
    assert unfinished(server, "lakes/") == []

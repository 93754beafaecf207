"""A real boto3 that signs by version 2, or not at all, and s3cmd, on a real HTTP server."""

from __future__ import annotations

import asyncio
import functools
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from gateway_lake import GatewayLake

from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_gateway.grants import Authenticator
from tarn_gateway.http import HttpLimits, HttpServer
from tarn_gateway.signing.sigv4 import SigV4Policy

pytestmark = pytest.mark.timeout(60)
BODY = b"rows" * 50_000
OF_PARTS = b"p" * (5 << 20) + b"q"


@functools.cache
def session() -> boto3.session.Session:
    return boto3.session.Session()


@pytest.fixture
async def connect(lake: GatewayLake) -> AsyncIterator[Callable[[Any], Any]]:
    """Makes clients of a gateway that accepts version 2; `sales` shows `lake/main` to everyone."""
    lake.handler._authenticator = Authenticator(
        lake.access, lake.clock, SigV4Policy(), timeout_s=10.0, sigv2_domains=("s3.test",)
    )
    lake.graveler.point("sales", "lake", "main", public_read=True)
    clock = SystemClock()
    server = HttpServer(
        lake.handler,
        HttpLimits(),
        clock=clock,
        ids=SystemIds(clock),
        on_error=lake.handler.refuse,
        observer=lake.traces.end,
    )
    made = []
    async with server:
        port = await server.listen("127.0.0.1", 0)

        def client(signature_version: Any) -> Any:
            config = Config(
                signature_version=signature_version,
                s3={"addressing_style": "path"},
                retries={"max_attempts": 0},
            )
            made.append(
                session().client(
                    "s3",
                    endpoint_url=f"http://127.0.0.1:{port}",
                    aws_access_key_id="AKIAADMIN",
                    aws_secret_access_key=lake.secret("AKIAADMIN"),
                    region_name="us-east-1",
                    config=config,
                )
            )
            return made[-1]

        yield client
        for each in made:
            each.close()


def _use(s3: Any) -> None:
    for bucket, key in (("lake", "main/d e+ü/a"), ("sales", "b c")):
        s3.put_object(Bucket=bucket, Key=key, Body=BODY, Metadata={"a": "1"}, ContentType="x/y")
        got = s3.get_object(Bucket=bucket, Key=key)
        assert (got["Body"].read(), got["Metadata"], got["ContentType"]) == (
            BODY,
            {"a": "1"},
            "x/y",
        )
        assert s3.head_object(Bucket=bucket, Key=key)["ContentLength"] == len(BODY)
        s3.copy_object(Bucket=bucket, Key=f"{key}2", CopySource={"Bucket": bucket, "Key": key})
        prefix = key.partition(" ")[0]
        listed = s3.list_objects_v2(Bucket=bucket, Prefix=prefix, Delimiter="~")["Contents"]
        assert {key, f"{key}2"} <= {each["Key"] for each in listed}
        begun = s3.create_multipart_upload(Bucket=bucket, Key=f"{key}3")
        upload = {"Bucket": bucket, "Key": f"{key}3", "UploadId": begun["UploadId"]}
        pieces = (OF_PARTS[: 5 << 20], OF_PARTS[5 << 20 :])
        parts = [
            {
                "PartNumber": number,
                "ETag": s3.upload_part(PartNumber=number, Body=piece, **upload)["ETag"],
            }
            for number, piece in enumerate(pieces, 1)
        ]
        assert len(s3.list_parts(**upload)["Parts"]) == 2
        s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)
        assert s3.head_object(Bucket=bucket, Key=f"{key}3")["ContentLength"] == len(OF_PARTS)
        keys = [{"Key": f"{key}{end}"} for end in ("2", "3")]
        deleted = s3.delete_objects(Bucket=bucket, Delete={"Objects": keys})["Deleted"]
        assert len(deleted) == 2
        url = s3.generate_presigned_url("get_object", {"Bucket": bucket, "Key": key}, 60)
        assert "AWSAccessKeyId=" in url
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert answer.read() == BODY
        s3.get_bucket_acl(Bucket=bucket)
        s3.get_bucket_location(Bucket=bucket)
    assert {each["Name"] for each in s3.list_buckets()["Buckets"]} >= {"lake"}


async def test_boto3_works_by_version_2(connect: Callable[[Any], Any]) -> None:
    await asyncio.to_thread(_use, connect("s3"))


def _read(s3: Any) -> None:
    assert s3.get_object(Bucket="sales", Key="a")["Body"].read() == b"text"
    assert s3.head_object(Bucket="sales", Key="a")["ContentLength"] == 4
    for each in (s3.list_objects, s3.list_objects_v2):
        assert [found["Key"] for found in each(Bucket="sales")["Contents"]] == ["a"]
    for refused in (
        lambda: s3.put_object(Bucket="sales", Key="b", Body=b"x"),
        lambda: s3.delete_object(Bucket="sales", Key="a"),
        lambda: s3.get_object(Bucket="lake", Key="main/a"),
        lambda: s3.get_bucket_acl(Bucket="sales"),
        s3.list_buckets,
    ):
        with pytest.raises(ClientError) as caught:
            refused()
        assert caught.value.response["Error"]["Code"] == "AccessDenied"


async def test_boto3_reads_a_public_bucket_without_a_key(
    lake: GatewayLake, connect: Callable[[Any], Any]
) -> None:
    await lake.ask("PUT", "/lake/main/a", body=b"text")
    await asyncio.to_thread(_read, connect(UNSIGNED))
    assert lake.handler._anonymous._running == 0


async def _s3cmd(port: int, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("s3cmd")),
        "--config=/dev/null",
        "--access_key=AKIAADMIN",
        "--secret_key=admin-secret",
        f"--host=127.0.0.1:{port}",
        f"--host-bucket=127.0.0.1:{port}",
        "--no-ssl",
        "--signature-v2",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_s3cmd_works_by_version_2(connect: Callable[[Any], Any], tmp_path: Path) -> None:
    port = int(connect(UNSIGNED).meta.endpoint_url.rpartition(":")[2])
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(BODY)
    uri = "s3://lake/main/d e+ü"
    await _s3cmd(port, "put", str(source), uri)
    await _s3cmd(port, "get", "--force", uri, str(back))
    assert back.read_bytes() == BODY
    assert uri in await _s3cmd(port, "ls", uri)
    await _s3cmd(port, "del", uri)

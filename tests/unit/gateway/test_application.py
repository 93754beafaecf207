"""The complete gateway on a loopback port, with requests of boto3 and raw ones."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config as BotoConfig
from botocore.exceptions import ClientError
from gateway_lake import GatewayLake

from tarn.block.local import open_local
from tarn.block.port import FileSlice
from tarn.config import load
from tarn.objects import bodies as bodies_module
from tarn.rpc.process.endpoint_tls import endpoint_tls
from tarn_gateway.anonymous import AnonymousBounds
from tarn_gateway.application import GatewayApplication
from tarn_gateway.config import GatewaySettings, settings_of
from tarn_gateway.operations import reading

LARGE = bytes(range(256)) * 4096 * 7  # 7 MiB


@dataclasses.dataclass
class Running:
    lake: GatewayLake
    application: GatewayApplication
    listened: dict[str, str]
    s3: Any


@pytest.fixture
async def running(lake: GatewayLake, tmp_path: Path) -> AsyncIterator[Running]:
    blocks = await open_local(tmp_path / "blocks", clock=lake.clock, durability="os")
    for name, repo in lake.graveler.repos.items():
        repo.namespace = f"local://{name}"
    listened: dict[str, str] = {}
    application = GatewayApplication(
        GatewaySettings(port=0),
        lake.client,
        lake.access,
        blocks,
        clock=lake.clock,
        ids=lake.backend.ids,
        listens=listened.__setitem__,
    )
    async with application:
        s3 = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{application.port}",
            aws_access_key_id="AKIAADMIN",
            aws_secret_access_key="admin-secret",
            region_name="us-east-1",
            config=BotoConfig(retries={"max_attempts": 0}, s3={"addressing_style": "path"}),
        )
        yield Running(lake, application, listened, s3)
        s3.close()
    await blocks.close()


async def test_boto3_writes_and_reads(running: Running) -> None:
    def talk(s3: Any) -> None:
        for key, body in (("main/small", b"text"), ("main/large", LARGE), ("main/none", b"")):
            put = s3.put_object(Bucket="lake", Key=key, Body=body, Metadata={"a": "b c"})
            assert put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
            got = s3.get_object(Bucket="lake", Key=key)
            assert (got["Body"].read(), got["Metadata"]) == (body, {"a": "b c"})
            assert s3.head_object(Bucket="lake", Key=key)["ContentLength"] == len(body)
        part = s3.get_object(Bucket="lake", Key="main/large", Range="bytes=100000-3000000")
        assert part["Body"].read() == LARGE[100000:3000001]
        assert part["ResponseMetadata"]["HTTPHeaders"]["x-amz-request-id"]
        copied = s3.copy_object(Bucket="lake", Key="dev/b", CopySource="lake/main/large")
        assert copied["CopyObjectResult"]["ETag"] == f'"{hashlib.md5(LARGE).hexdigest()}"'
        listed = s3.list_objects_v2(Bucket="lake", Prefix="main/")
        assert [each["Key"] for each in listed["Contents"]] == [
            "main/large",
            "main/none",
            "main/small",
        ]
        objects = [{"Key": each["Key"]} for each in listed["Contents"]]
        deleted = s3.delete_objects(Bucket="lake", Delete={"Objects": objects})
        assert len(deleted["Deleted"]) == 3
        with pytest.raises(ClientError) as caught:
            s3.get_object(Bucket="lake", Key="main/small")
        assert caught.value.response["Error"]["Code"] == "NoSuchKey"

    await asyncio.to_thread(talk, running.s3)


async def test_boto3_uploads_in_parts(running: Running) -> None:
    def talk(s3: Any) -> None:
        where = {"Bucket": "lake", "Key": "main/parts"}
        upload = s3.create_multipart_upload(**where, ChecksumAlgorithm="CRC64NVME")["UploadId"]
        parts = []
        for number, body in ((1, LARGE), (2, b"tail")):
            sent = s3.upload_part(
                **where,
                UploadId=upload,
                PartNumber=number,
                Body=body,
                ChecksumAlgorithm="CRC64NVME",
            )
            parts.append(
                {
                    "PartNumber": number,
                    "ETag": sent["ETag"],
                    "ChecksumCRC64NVME": sent["ChecksumCRC64NVME"],
                }
            )
        done = s3.complete_multipart_upload(
            **where, UploadId=upload, MultipartUpload={"Parts": parts}
        )
        assert done["ETag"].endswith('-2"')
        assert done["ChecksumType"] == "FULL_OBJECT"
        assert s3.get_object(**where)["Body"].read() == LARGE + b"tail"

    await asyncio.to_thread(talk, running.s3)


async def test_it_reports_its_address(running: Running) -> None:
    assert running.listened == {"s3": f"127.0.0.1:{running.application.port}"}
    assert running.application.endpoints == ()


async def test_a_drain_waits_for_blocks_that_are_removed_behind_answers(running: Running) -> None:
    may_remove, removed = asyncio.Event(), asyncio.Event()

    async def remove() -> None:
        await may_remove.wait()
        removed.set()

    running.application._backend.removals.spawn(remove())
    drain = asyncio.get_running_loop().create_task(running.application.drain(30.0))
    done, _ = await asyncio.wait([drain], timeout=0.05)
    assert not done
    may_remove.set()
    async with asyncio.timeout(5.0):
        await drain
    assert removed.is_set()


async def test_an_anonymous_client_is_denied(running: Running) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.application.port)
    writer.write(b"GET /lake/main/a HTTP/1.1\r\nHost: x\r\n\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert head.startswith("http/1.1 403")
    assert "x-amz-request-id: " in head
    assert "server: tarn" in head
    assert "date: " in head
    writer.close()
    await writer.wait_closed()


async def test_large_objects_are_sent_as_files(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies: list[object] = []
    opened = bodies_module.open_body

    async def note(*arguments: Any) -> Any:
        bodies.append(await opened(*arguments))
        return bodies[-1]

    monkeypatch.setattr(reading, "open_body", note)

    def talk(s3: Any) -> None:
        s3.put_object(Bucket="lake", Key="main/large", Body=LARGE)
        assert s3.get_object(Bucket="lake", Key="main/large")["Body"].read() == LARGE

    await asyncio.to_thread(talk, running.s3)
    assert isinstance(bodies[0], FileSlice)


def test_settings_come_from_the_configuration(tmp_path: Path) -> None:
    config = load(
        None,
        {
            "HOME": str(tmp_path),
            "TARN_GATEWAYS_S3_LISTEN_ADDRESS": "127.0.0.1:9000",
            "TARN_GATEWAYS_S3_DOMAIN_NAME": "S3.example.org",
            "TARN_GATEWAYS_S3_REGION": "eu-test-1",
            "TARN_LIMITS_CONNECTIONS": "7",
            "TARN_LIMITS_BODY_SIZE": "1GiB",
            "TARN_LIMITS_BODY_RATE": "99",
            "TARN_LIMITS_DOCUMENT_MEMORY": "20MiB",
            "TARN_LIMITS_ANONYMOUS_REQUESTS": "30",
            "TARN_LIMITS_ANONYMOUS_ADDRESS_REQUESTS": "9",
            "TARN_QUOTAS_GATEWAYS": "3",
            "TARN_GATEWAYS_S3_SIGV2": "true",
        },
    )
    settings = settings_of(config, reuse_port=True)
    assert (settings.host, settings.port, settings.reuse_port) == ("127.0.0.1", 9000, True)
    assert (settings.region, settings.domains) == ("eu-test-1", ("s3.example.org",))
    limits, bounds = settings.limits, settings.bounds
    assert (limits.connections_max, limits.unidentified_max) == (7, 3)
    assert (limits.body_rate_min_bytes, bounds.document_memory_bytes) == (99, 20 * 1024**2)
    assert settings.bounds.payload.object_bytes_max == 1024**3
    assert (settings.anonymous, settings.sigv2) == (AnonymousBounds(10.0, 3.0, 1), True)
    assert endpoint_tls("gateways.s3", config.gateways.s3.tls) is None


@pytest.mark.parametrize(
    "wrong", [{"port": 70_000}, {"region": ""}, {"domains": ("S3.test",)}, {"domains": ("",)}]
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="gateway"):
        GatewaySettings(**wrong)

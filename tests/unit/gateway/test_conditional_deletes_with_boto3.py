"""Conditional deletes of boto3: two gateways, each with a replica of graveler, over one store and the real auth."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import lake as lakes
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from graveler_service import Service, running_service
from tests.support.clock import ManualClock, SeededIds

from tarn.gate.access import Access
from tarn_gateway.application import GatewayApplication
from tarn_gateway.config import GatewaySettings

pytestmark = pytest.mark.timeout(120)

FAILED, GONE = (412, "PreconditionFailed"), (404, "NoSuchKey")
NOTHING = "0" * 32
CLIENTS = 8
AT = {"Bucket": "lake", "Key": "main/a"}


@dataclass(frozen=True)
class Running:
    """Two gateways; their clients; and what threads of these clients need of the loop."""

    service: Service
    clients: list[Any]
    loop: asyncio.AbstractEventLoop

    def commit(self) -> None:
        """Commits the branch, from a thread."""
        graveler, admin = self.service.graveler, self.service.admin
        work = graveler.create_commit(admin, "lake", "main", "between")
        asyncio.run_coroutine_threadsafe(work, self.loop).result(30)


def gateway_of(service: Service, seed: int) -> GatewayApplication:
    access = Access(service.auth, service.clock)
    return GatewayApplication(
        GatewaySettings(port=0),
        service.graveler,
        access,
        service.replicas.blocks,
        clock=service.clock,
        ids=SeededIds(service.clock, seed=seed),
    )


def client_of(gateway: GatewayApplication, service: Service) -> Any:
    key_id, secret = service.admin_key
    return boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{gateway.port}",
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    # boto3 signs with the machine's time.
    monkeypatch.setattr(lakes, "ManualClock", lambda: ManualClock(time.time_ns() // 1000))
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(running_service(tmp_path))
        rival = await stack.enter_async_context(service.another_replica())
        gateways = [gateway_of(service, 1), gateway_of(rival, 2)]
        for gateway in gateways:
            await stack.enter_async_context(gateway)
        clients = [client_of(gateways[n % 2], service) for n in range(CLIENTS)]
        yield Running(service, clients, asyncio.get_running_loop())
        for each in clients:
            each.close()


def outcome(call: Any, **arguments: Any) -> tuple[int, str]:
    """Returns status and code of an answer; the code is empty after a success."""
    try:
        answer = call(**arguments)
    except ClientError as error:
        told = error.response
        return told["ResponseMetadata"]["HTTPStatusCode"], told["Error"]["Code"]
    return answer["ResponseMetadata"]["HTTPStatusCode"], ""


async def test_boto3_deletes_by_condition(running: Running) -> None:
    def talk(s3: Any) -> None:
        assert outcome(s3.delete_object, **AT, IfMatch="*") == GONE
        etag = s3.put_object(**AT, Body=b"12345")["ETag"]
        head = s3.head_object(**AT)
        assert outcome(s3.delete_object, **AT, IfMatch=f'"{NOTHING}"') == FAILED
        assert outcome(s3.delete_object, **AT, IfMatchSize=4) == FAILED
        early = head["LastModified"].replace(year=2001)
        assert outcome(s3.delete_object, **AT, IfMatchLastModifiedTime=early) == FAILED
        running.commit()
        assert outcome(s3.delete_object, **AT, IfMatch=etag, IfMatchSize=4) == FAILED
        assert s3.get_object(**AT)["Body"].read() == b"12345"
        right = {"IfMatchSize": 5, "IfMatchLastModifiedTime": head["LastModified"]}
        assert outcome(s3.delete_object, **AT, IfMatch=etag, **right) == (204, "")
        assert outcome(s3.head_object, **AT)[0] == 404
        assert outcome(s3.delete_object, **AT, IfMatch=etag) == GONE
        assert outcome(s3.delete_object, **AT, **right) == (204, "")
        running.commit()
        assert outcome(s3.head_object, Bucket="lake", Key="main@/a")[0] == 404

    await asyncio.to_thread(talk, running.clients[0])


async def test_boto3_deletes_many_by_condition(running: Running) -> None:
    def talk(s3: Any) -> None:
        for key in "abcdef":
            s3.put_object(Bucket="lake", Key=f"main/{key}", Body=key.encode())
        heads = {key: s3.head_object(Bucket="lake", Key=f"main/{key}") for key in "abcdef"}
        running.commit()
        objects = [
            {"Key": "main/a"},
            {"Key": "main/b", "ETag": heads["b"]["ETag"]},
            {"Key": "main/c", "ETag": heads["b"]["ETag"]},
            {"Key": "main/d", "Size": 1, "LastModifiedTime": heads["d"]["LastModified"]},
            {"Key": "main/e", "Size": 2},
            {"Key": "main/f", "LastModifiedTime": heads["f"]["LastModified"].replace(year=2001)},
            {"Key": "main/g", "ETag": NOTHING},
        ]
        answer = s3.delete_objects(Bucket="lake", Delete={"Objects": objects})
        assert [each["Key"] for each in answer["Deleted"]] == ["main/a", "main/b", "main/d"]
        assert {each["Key"]: each["Code"] for each in answer["Errors"]} == {
            "main/c": "PreconditionFailed",
            "main/e": "PreconditionFailed",
            "main/f": "PreconditionFailed",
            "main/g": "NoSuchKey",
        }
        listed = s3.list_objects_v2(Bucket="lake", Prefix="main/")["Contents"]
        assert [each["Key"] for each in listed] == ["main/c", "main/e", "main/f"]

    await asyncio.to_thread(talk, running.clients[0])


async def test_one_of_several_racing_clients_gets_each_version(running: Running) -> None:
    """Deleters and writers of one version, through two gateways, with commits between."""

    def race(number: int) -> None:
        key = {"Bucket": "lake", "Key": f"main/{number}"}
        etag = running.clients[0].put_object(**key, Body=b"first")["ETag"]
        if number % 2:
            running.commit()

        def act(client: int) -> tuple[int, str]:
            s3 = running.clients[client]
            if client % 4 == 3:
                return outcome(s3.put_object, **key, IfMatch=etag, Body=b"second")
            return outcome(s3.delete_object, **key, IfMatch=etag)

        with ThreadPoolExecutor(CLIENTS) as pool:
            outcomes = list(pool.map(act, range(CLIENTS)))
        winners = [client for client, told in enumerate(outcomes) if told[0] in (200, 204)]
        assert len(winners) == 1, outcomes
        is_replaced = winners[0] % 4 == 3
        assert outcomes.count(FAILED if is_replaced else GONE) == CLIENTS - 1, outcomes
        assert outcome(running.clients[0].head_object, **key)[0] == (200 if is_replaced else 404)

    def races() -> None:
        for number in range(6):
            race(number)

    await asyncio.to_thread(races)

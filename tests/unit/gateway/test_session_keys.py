"""Session keys on the wire: boto3 against a gateway with the real auth and graveler."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from graveler_service import Service, reason_of, running_service
from lake_tasks import done
from tests.support.clock import ManualClock, SeededIds
from tests.support.record_events import record_events

from tarn.core.errors import Reason
from tarn.core.ids import BranchId
from tarn.gate.access import Access
from tarn.kv.keys import InstallationKeys
from tarn.kv.registrations import Registrations, hour_of
from tarn.rpc.wire.call import Call
from tarn.telemetry.audit.log import AuditConfig, AuditLog, auditing
from tarn.telemetry.meters import Meters
from tarn_gateway.application import GatewayApplication
from tarn_gateway.config import GatewaySettings
from tarn_graveler.records.branches import BranchName
from tarn_proto.auth.v1.session_key_service_pb2 import (
    Binding,
    CreateSessionKeyRequest,
    CreateSessionKeyResponse,
    Permission,
)
from tarn_proto.graveler.v1.commit_service_pb2 import CreateCommitRequest
from tarn_proto.store.v1.journal_pb2 import JOURNAL_OPERATION_COMMIT, JournalEvent

pytestmark = pytest.mark.timeout(60)
MAIN = "repository/lake/branch/main/object/"


@dataclass
class World:
    """A running gateway and its clients."""

    service: Service
    application: GatewayApplication
    clients: list[Any]
    records: Callable[[], list[dict[str, Any]]]
    """Ends the audit log of the gateway and returns what it has."""

    def client(self, key: tuple[str, ...], service: str = "s3") -> Any:
        made = boto3.client(
            service,
            endpoint_url=f"http://127.0.0.1:{self.application.port}",
            aws_access_key_id=key[0],
            aws_secret_access_key=key[1],
            aws_session_token=key[2] if len(key) > 2 else None,
            region_name="us-east-1",
            config=Config(
                retries={"max_attempts": 0},
                s3={"addressing_style": "path"},
                signature_version="s3v4" if service == "s3" else None,
            ),
        )
        self.clients.append(made)
        return made

    async def issue(self, **fields: Any) -> CreateSessionKeyResponse:
        """Issues a session key of the administrator."""
        request = CreateSessionKeyRequest(**fields)
        return await self.service.auth.create_session_key(self.service.admin, request)

    async def logged_in(self, made: CreateSessionKeyResponse) -> Call:
        """Returns a call of the holder of a session key, past the gateway."""
        session = await self.service.auth.log_in(
            self.service.anonymous,
            made.session_key.access_key_id,
            made.secret_access_key,
            now_us=self.service.clock.now_us(),
            nonce=made.session_token.encode()[:16],
            session_token=made.session_token,
        )
        return replace(self.service.admin, caller_token=session.grant.caller_token)


def key_of(made: CreateSessionKeyResponse) -> tuple[str, str, str]:
    return made.session_key.access_key_id, made.secret_access_key, made.session_token


@pytest.fixture
async def world(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """With the parameter True the service has a journal."""
    keeps_events = bool(getattr(request, "param", False))
    config = AuditConfig(tmp_path / "audit")
    with auditing(config, "gateway", ManualClock(), Meters(), sys.stdout) as log:
        assert log is not None

        def records() -> list[dict[str, Any]]:
            assert log.close()
            lines = (tmp_path / "audit" / "gateway-0.jsonl").read_text().splitlines()
            return [json.loads(line) for line in lines]

        async with running(tmp_path, log, keeps_events=keeps_events) as (service, application):
            made = World(service, application, [], records)
            yield made
            for each in made.clients:
                each.close()


@asynccontextmanager
async def running(
    folder: Path, log: AuditLog, *, keeps_events: bool
) -> AsyncIterator[tuple[Service, GatewayApplication]]:
    async with running_service(folder, keeps_events=keeps_events) as early:
        # boto3 signs with the time of this machine, which may be off by 15 minutes: this one is 10 minutes early.
        early.clock.advance(time.time_ns() / 1e9 - 600 - early.clock.now_us() / 1e6)
        service = await early.logged_in()
        for branch in ("dev", "try"):
            await service.graveler.create_branch(service.admin, "lake", branch, "main")
        application = GatewayApplication(
            GatewaySettings(port=0),
            service.graveler,
            Access(service.auth, service.clock),
            service.replicas.blocks,
            clock=service.clock,
            ids=SeededIds(service.clock, seed=5),
            audit=log,
        )
        async with application:
            yield service, application


def code_of(work: Callable[..., Any], **arguments: Any) -> tuple[int, str]:
    with pytest.raises(ClientError) as caught:
        work(**arguments)
    response = caught.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


async def test_boto3_writes_and_reads_with_a_session_key(world: World) -> None:
    key = key_of(await world.issue())

    def talk(s3: Any) -> None:
        s3.put_object(Bucket="lake", Key="main/a", Body=b"1")
        large = bytes(200_000)
        s3.put_object(Bucket="lake", Key="main/large", Body=large)
        upload = s3.create_multipart_upload(Bucket="lake", Key="main/m")["UploadId"]
        place = {"Bucket": "lake", "Key": "main/m", "UploadId": upload}
        part = s3.upload_part(**place, PartNumber=1, Body=large)["ETag"]
        parts = {"Parts": [{"PartNumber": 1, "ETag": part}]}
        s3.complete_multipart_upload(**place, MultipartUpload=parts)
        s3.copy_object(Bucket="lake", Key="dev/c", CopySource="lake/main/large")
        assert s3.get_object(Bucket="lake", Key="dev/c")["Body"].read() == large
        listed = s3.list_objects_v2(Bucket="lake", Prefix="main/")
        assert [each["Key"] for each in listed["Contents"]] == ["main/a", "main/large", "main/m"]
        s3.delete_objects(Bucket="lake", Delete={"Objects": [{"Key": "main/a"}]})
        assert code_of(s3.get_object, Bucket="lake", Key="main/a") == (404, "NoSuchKey")
        url = s3.generate_presigned_url("get_object", {"Bucket": "lake", "Key": "main/m"})
        assert "X-Amz-Security-Token=" in url
        with urllib.request.urlopen(url) as answer:
            assert answer.read() == large

    await asyncio.to_thread(talk, world.client(key))


@pytest.mark.parametrize("world", [True], indirect=True)
async def test_events_say_by_which_session_key_a_request_came(world: World) -> None:
    """Those of objects and of records, beside its user; with a key pair there is none. They hold no secret."""
    service = world.service
    made = await world.issue()
    root = await service.auth.get_user(service.admin, "root")
    kv, clock = service.replicas.kv, service.clock
    hours = range(hour_of(clock.now_us()) - 1, hour_of(clock.now_us()) + 1)
    registrations = Registrations(kv, InstallationKeys("test"), clock)

    def talk(s3: Any, name: str) -> None:
        s3.put_object(Bucket="lake", Key=f"main/{name}", Body=b"1")
        upload = s3.create_multipart_upload(Bucket="lake", Key=f"main/{name}-m")["UploadId"]
        place = {"Bucket": "lake", "Key": f"main/{name}-m", "UploadId": upload}
        part = s3.upload_part(**place, PartNumber=1, Body=b"2")["ETag"]
        parts = {"Parts": [{"PartNumber": 1, "ETag": part}]}
        s3.complete_multipart_upload(**place, MultipartUpload=parts)
        s3.copy_object(Bucket="lake", Key=f"main/{name}-c", CopySource=f"lake/main/{name}")
        s3.delete_object(Bucket="lake", Key=f"main/{name}")

    await asyncio.to_thread(talk, world.client(key_of(made)), "session")
    await asyncio.to_thread(talk, world.client(service.admin_key), "pair")
    repository = await service.replica.repositories.get("lake")
    keys = service.replica.repositories.keys_of(repository)
    branch = (await service.replica.branches.fresh(BranchName(repository, BranchId("main")))).branch
    staged = await kv.scan_companions(keys.token(BranchId("main"), branch.staging), b"", None, 100)
    of_objects = [JournalEvent.FromString(each.value) for each in staged]
    caller = await world.logged_in(made)
    await service.graveler.create_branch(caller, "lake", "mine", "main")
    # As a task, in a run of its own.
    wish = CreateCommitRequest(repository_id="lake", branch_id="main", message="a")
    task = await service.graveler.start_commit(caller, wish)
    await done(service, task.task_id)
    told = [each.event async for each in record_events(kv, registrations, hours, clock.now_us())]
    of_branch = [each for each in told if each.key == "branches/mine"]
    of_task = [each for each in told if each.operation == JOURNAL_OPERATION_COMMIT]

    session = made.session_key.access_key_id.encode()
    assert {each.session_uid for each in of_branch} == {session}
    assert [(each.key, each.session_uid) for each in of_task] == [("branches/main", session)]
    by: dict[bytes, dict[int, str]] = {}
    for each in of_objects:
        by.setdefault(each.session_uid, {})[each.operation] = each.key.partition("-")[0]
    assert {who: set(names.values()) for who, names in by.items()} == {
        session: {"session"},
        b"": {"pair"},
    }
    assert set(by[session]) == set(by[b""]), "each kind of operation"
    assert len(by[session]) == 4
    secrets = (made.secret_access_key.encode(), made.session_token.encode())
    for each in of_objects + of_branch + of_task:
        assert each.user_uid == root.user_uid
        assert not any(secret in each.SerializeToString() for secret in secrets)


async def test_the_token_is_checked_everywhere(world: World) -> None:
    first, second = key_of(await world.issue()), key_of(await world.issue())
    get = {"Bucket": "lake", "Key": "main/none"}

    def status_of(url: str) -> tuple[int, bytes]:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url)
        with caught.value as error:
            return error.code, error.read()

    def talk() -> None:
        right = world.client(first)
        assert code_of(right.get_object, **get) == (404, "NoSuchKey")
        bare = world.client(first[:2])
        assert code_of(bare.get_object, **get) == (403, "InvalidAccessKeyId")
        other = world.client((*first[:2], second[2]))
        assert code_of(other.get_object, **get) == (400, "InvalidToken")
        pair = world.client((*world.service.admin_key, first[2]))
        assert code_of(pair.get_object, **get) == (400, "InvalidToken")
        wrong = world.client((first[0], second[1], first[2]))
        assert code_of(wrong.get_object, **get) == (403, "SignatureDoesNotMatch")
        status, body = status_of(wrong.generate_presigned_url("get_object", get))
        assert (status, b"SignatureDoesNotMatch" in body) == (403, True)
        assert first[2].encode() not in body  # errors are logged

        url = right.generate_presigned_url("get_object", get)
        assert status_of(url)[0] == 404
        without = url.replace(f"&X-Amz-Security-Token={first[2]}", "")
        assert without != url
        status, body = status_of(without)
        assert (status, b"InvalidAccessKeyId" in body) == (403, True)
        status, body = status_of(url.replace(first[2], second[2]))
        assert (status, b"InvalidToken" in body) == (400, True)
        # A token that is added to a request without one is not signed.
        plain = bare.generate_presigned_url("get_object", get)
        status, body = status_of(f"{plain}&X-Amz-Security-Token={first[2]}")
        assert (status, b"SignatureDoesNotMatch" in body) == (403, True)

    await asyncio.to_thread(talk)


async def test_an_ended_and_an_expired_key_are_refused(world: World) -> None:
    ended, expired = await world.issue(), await world.issue(duration_s=900)
    await world.service.auth.end_session_key(world.service.admin, ended.session_key.access_key_id)

    def talk() -> None:
        s3 = world.client(key_of(ended))
        assert code_of(s3.list_buckets) == (400, "InvalidToken")
        s3 = world.client(key_of(expired))
        s3.list_buckets()
        world.service.clock.advance(899)
        s3.list_buckets()
        world.service.clock.advance(1)
        assert code_of(s3.list_buckets) == (400, "ExpiredToken")

    await asyncio.to_thread(talk)


async def test_fewer_rights_hold_in_the_gateway_and_in_graveler(world: World) -> None:
    made = await world.issue(
        permissions=[
            Permission(actions=["ReadRepo"], resources=["repository/*"]),
            Permission(actions=["WriteRepo"], resources=[f"{MAIN}raw/*"]),
        ]
    )

    def talk(s3: Any) -> None:
        s3.put_object(Bucket="lake", Key="main/raw/a", Body=b"1")
        for key in ("main/b", "dev/raw/a"):
            put = {"Bucket": "lake", "Key": key, "Body": b"1"}
            assert code_of(s3.put_object, **put) == (403, "AccessDenied")
        assert code_of(s3.list_buckets) == (403, "AccessDenied")

    await asyncio.to_thread(talk, world.client(key_of(made)))
    call, service = await world.logged_in(made), world.service
    await service.stage("raw/b", service.entry(3), call=call)
    for work in (
        service.stage("b", service.entry(3), call=call),
        service.stage("raw/b", service.entry(3), "dev", call=call),
        service.graveler.create_commit(call, "lake", "main", "m"),
        service.graveler.create_branch(call, "lake", "mine", "main"),
        service.graveler.delete_branch(call, "lake", "dev"),
        service.graveler.create_repository(call, "mine"),
    ):
        assert await reason_of(work) is Reason.ACCESS_DENIED
    assert (await service.graveler.get_branch(call, "lake", "main")).branch_id == "main"


async def test_an_administrators_session_changes_data_and_nothing_else(world: World) -> None:
    call, graveler = await world.logged_in(await world.issue()), world.service.graveler
    await graveler.create_branch(call, "lake", "mine", "main")
    await world.service.put("x", 1)
    await graveler.create_commit(call, "lake", "main", "m")
    for work in (
        graveler.create_repository(call, "mine"),
        graveler.delete_repository(call, "lake"),
        graveler.create_bucket_view(call, "sales", "lake", "main"),
    ):
        assert await reason_of(work) is Reason.ACCESS_DENIED


async def test_a_binding_and_main_side_by_side(world: World) -> None:
    service = world.service
    await service.graveler.create_bucket_view(service.admin, "sales", "lake", "main")
    bound = await world.issue(
        bindings=[Binding(bucket_id="sales", repository_id="lake", ref="try")]
    )
    other = await world.issue(bindings=[Binding(bucket_id="lake", repository_id="lake", ref="dev")])

    def talk() -> None:
        tried, dev = world.client(key_of(bound)), world.client(key_of(other))
        main = world.client(world.service.admin_key)
        for s3, text in ((main, b"main"), (tried, b"try")):
            s3.put_object(Bucket="sales", Key="d/a", Body=text)
        dev.put_object(Bucket="lake", Key="main/a", Body=b"dev")  # `main/a` is a path of dev
        for bucket, key, body in (
            ("sales", "d/a", b"main"),
            ("lake", "main/d/a", b"main"),
            ("lake", "try/d/a", b"try"),
            ("lake", "dev/main/a", b"dev"),
        ):
            assert main.get_object(Bucket=bucket, Key=key)["Body"].read() == body
        assert tried.get_object(Bucket="sales", Key="d/a")["Body"].read() == b"try"
        assert tried.get_object(Bucket="lake", Key="main/d/a")["Body"].read() == b"main"
        tried.copy_object(Bucket="sales", Key="b", CopySource="sales/d/a")
        listed = tried.list_objects_v2(Bucket="sales", MaxKeys=1)
        assert (listed["Name"], listed["Contents"][0]["Key"]) == ("sales", "b")
        token = listed["NextContinuationToken"]
        rest = tried.list_objects_v2(Bucket="sales", ContinuationToken=token)
        assert [each["Key"] for each in rest["Contents"]] == ["d/a"]
        # A listing does not go on with another ref.
        page = {"Bucket": "sales", "ContinuationToken": token}
        assert code_of(main.list_objects_v2, **page) == (400, "InvalidArgument")
        tried.head_bucket(Bucket="sales")
        names = [each["Name"] for each in tried.list_buckets()["Buckets"]]
        assert names == ["lake", "sales"]
        tried.delete_object(Bucket="sales", Key="d/a")
        assert main.get_object(Bucket="sales", Key="d/a")["Body"].read() == b"main"

    await asyncio.to_thread(talk)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
async def test_bound_names_are_listed_in_their_order_in_pages(world: World, size: int) -> None:
    service = world.service
    for name in ("b-view", "d-view", "e-view"):
        await service.graveler.create_bucket_view(service.admin, name, "lake", "main")
    names = ("a-bound", "b-bound", "c-bound", "d-view", "z-bound")
    bound = [Binding(bucket_id=name, repository_id="lake", ref="try") for name in names]
    made = await world.issue(bindings=bound)
    expected = sorted({*names, "b-view", "e-view", "lake"})

    def talk() -> None:
        s3 = world.client(key_of(made))
        for prefix in ("", "b", "c", "z", "y"):
            seen: list[str] = []
            more: dict[str, Any] = {}
            while True:
                page = s3.list_buckets(MaxBuckets=size, Prefix=prefix, **more)
                assert len(page["Buckets"]) <= size
                seen += [each["Name"] for each in page["Buckets"]]
                if "ContinuationToken" not in page:
                    break
                more = {"ContinuationToken": page["ContinuationToken"]}
            assert seen == [name for name in expected if name.startswith(prefix)]
        shown = s3.list_buckets()["Buckets"]
        assert [each["Name"] for each in shown] == expected
        bad = {"ContinuationToken": "bad"}
        assert code_of(s3.list_buckets, **bad) == (400, "InvalidArgument")
        assert s3.list_buckets(BucketRegion="eu-west-1")["Buckets"] == []

    await asyncio.to_thread(talk)


async def test_a_form_needs_the_token_of_its_key(world: World) -> None:
    first, second = key_of(await world.issue()), key_of(await world.issue())

    def send(form: dict[str, Any], **changed: str | None) -> tuple[int, bytes]:
        fields = {**form["fields"], **changed}
        parts = [
            f'--limit\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in fields.items()
            if value is not None
        ]
        parts.append(
            '--limit\r\nContent-Disposition: form-data; name="file"\r\n\r\nrows\r\n--limit--\r\n'
        )
        kind = {"Content-Type": "multipart/form-data; boundary=limit"}
        request = urllib.request.Request(form["url"], "".join(parts).encode(), kind)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def talk() -> None:
        s3 = world.client(first)
        token = "x-amz-security-token"
        form = s3.generate_presigned_post("lake", "main/form")
        assert form["fields"][token] == first[2]
        for changed, status, code in (
            ({token: None}, 403, b"InvalidAccessKeyId"),
            ({token: second[2]}, 400, b"InvalidToken"),
            ({token: "guess"}, 400, b"InvalidToken"),
            ({"policy": "e30="}, 403, b"SignatureDoesNotMatch"),
        ):
            told, body = send(form, **changed)
            assert (told, code in body) == (status, True), body
            assert first[2].encode() not in body
        get = {"Bucket": "lake", "Key": "main/form"}
        assert code_of(s3.get_object, **get) == (404, "NoSuchKey")
        # A key pair's form is not one of a session key, whatever token is added to it.
        pair = world.client(world.service.admin_key).generate_presigned_post("lake", "main/form")
        assert send(pair, **{token: first[2]})[0] == 400
        assert send(form)[0] == 204
        assert s3.get_object(**get)["Body"].read() == b"rows"

    await asyncio.to_thread(talk)


async def test_a_binding_grants_nothing(world: World) -> None:
    made = await world.issue(
        permissions=[Permission(actions=["ReadRepo", "WriteRepo"], resources=[f"{MAIN}*"])],
        bindings=[
            Binding(bucket_id="sales", repository_id="lake", ref="dev"),
            Binding(bucket_id="gone", repository_id="lake", ref="gone"),
            Binding(bucket_id="nothing", repository_id="nowhere", ref="main"),
        ],
    )
    free = await world.issue(bindings=made.session_key.bindings)

    def talk() -> None:
        s3 = world.client(key_of(made))
        get = {"Bucket": "sales", "Key": "a"}
        assert code_of(s3.get_object, **get) == (403, "AccessDenied")
        assert code_of(s3.put_object, **get, Body=b"1") == (403, "AccessDenied")
        s3 = world.client(key_of(free))
        for bucket in ("gone", "nothing"):
            put = {"Bucket": bucket, "Key": "a", "Body": b"1"}
            assert code_of(s3.put_object, **put) == (404, "NoSuchBucket")
            assert code_of(s3.list_objects_v2, Bucket=bucket) == (404, "NoSuchBucket")

    await asyncio.to_thread(talk)

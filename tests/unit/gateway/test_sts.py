"""AssumeRole: boto3's STS client against a gateway with the real auth and graveler."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials


def _sibling(name: str) -> ModuleType:
    """Imports a module of this folder, which is not on the path (import mode importlib)."""
    full = f"tests_unit_gateway_{name}"
    spec = importlib.util.spec_from_file_location(full, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[full] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_keys: Any = _sibling("test_session_keys")
world = _keys.world
code_of = _keys.code_of
pytestmark = pytest.mark.timeout(60)

ROLE = "arn:tarn:iam:::role/session"
FORM = {
    "Action": "AssumeRole",
    "Version": "2011-06-15",
    "RoleArn": ROLE,
    "RoleSessionName": "nightly",
}


def triple(answer: Any) -> tuple[str, str, str]:
    found = answer["Credentials"]
    return found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"]


async def test_boto3_gets_a_session_key_and_uses_it(world: Any) -> None:
    def talk() -> str:
        sts = world.client(world.service.admin_key, "sts")
        answer = sts.assume_role(RoleArn=ROLE, RoleSessionName="nightly", DurationSeconds=1800)
        left_s = answer["Credentials"]["Expiration"].timestamp()
        assert left_s == pytest.approx(world.service.clock.now_us() / 1e6 + 1800, abs=5)
        s3 = world.client(triple(answer))
        s3.put_object(Bucket="lake", Key="main/a", Body=b"1")
        assert s3.get_object(Bucket="lake", Key="main/a")["Body"].read() == b"1"
        own = world.client(triple(answer), "sts")
        denied = {"RoleArn": ROLE, "RoleSessionName": "more"}
        assert code_of(own.assume_role, **denied) == (403, "AccessDenied")
        return triple(answer)[0]

    key = await asyncio.to_thread(talk)
    found = [
        (each["operation"], each["resource"], each["outcome"], each["access_key_id"])
        for each in world.records()
    ]
    assert found == [
        ("s3:AssumeRole", f"user/root/session/{key}", "ok", world.service.admin_key[0]),
        ("s3:PutObject", "repository/lake/branch/main/object/a", "ok", key),
        ("s3:AssumeRole", "user/root/session/*", "denied", key),
    ]
    (listed,) = (await world.service.auth.list_session_keys(world.service.admin)).session_keys
    assert (listed.access_key_id, listed.description) == (key, "nightly")


async def test_a_role_that_reads_and_a_policy(world: Any) -> None:
    policy: Any = {
        "permissions": [
            {"actions": ["ReadRepo"], "resources": ["repository/lake", "repository/lake/ref/try*"]}
        ],
        "bindings": [{"bucket_id": "sales", "repository_id": "lake", "ref": "try"}],
    }

    def talk() -> None:
        main = world.client(world.service.admin_key)
        main.put_object(Bucket="lake", Key="try/a", Body=b"try")
        sts = world.client(world.service.admin_key, "sts")
        reading = {"RoleArn": f"{ROLE}-read-only", "RoleSessionName": "reader"}
        s3 = world.client(triple(sts.assume_role(**reading)))
        assert s3.get_object(Bucket="lake", Key="try/a")["Body"].read() == b"try"
        put = {"Bucket": "lake", "Key": "try/b", "Body": b"1"}
        assert code_of(s3.put_object, **put) == (403, "AccessDenied")
        s3 = world.client(triple(sts.assume_role(**reading, Policy=json.dumps(policy))))
        assert s3.get_object(Bucket="sales", Key="a")["Body"].read() == b"try"
        assert code_of(s3.get_object, Bucket="lake", Key="main/a") == (403, "AccessDenied")
        policy["permissions"][0]["actions"] = ["WriteRepo"]
        more = {**reading, "Policy": json.dumps(policy)}
        assert code_of(sts.assume_role, **more) == (400, "MalformedPolicyDocument")

    await asyncio.to_thread(talk)


IAM = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*"}]}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"RoleArn": "arn:aws:iam::123456789012:role/admin"}, "ValidationError"),
        ({"ExternalId": "12"}, "ValidationError"),
        ({"PolicyArns": [{"arn": "arn:aws:iam::aws:policy/x"}]}, "ValidationError"),
        ({"Tags": [{"Key": "a", "Value": "b"}]}, "ValidationError"),
        ({"DurationSeconds": 43_201}, "ValidationError"),
        ({"Policy": json.dumps(IAM)}, "MalformedPolicyDocument"),
        ({"Policy": "[" * 3000}, "MalformedPolicyDocument"),
        ({"Policy": '{"duration_s": 1}'}, "MalformedPolicyDocument"),
        (
            {
                "Policy": '{"permissions": [{"actions": ["WriteUsers"], "resources": ["repository/*"]}]}'
            },
            "ValidationError",
        ),
        ({"Policy": '{"bindings": [{"bucket_id": "S"}]}'}, "ValidationError"),
    ],
)
async def test_a_bad_request_issues_nothing(world: Any, fields: dict[str, Any], code: str) -> None:
    def talk() -> None:
        sts = world.client(world.service.admin_key, "sts")
        wanted = {"RoleArn": ROLE, "RoleSessionName": "nightly", **fields}
        assert code_of(sts.assume_role, **wanted) == (400, code)

    await asyncio.to_thread(talk)
    assert not (await world.service.auth.list_session_keys(world.service.admin)).session_keys


async def test_other_callers_and_other_actions(world: Any) -> None:
    def talk() -> None:
        wanted = {"RoleArn": ROLE, "RoleSessionName": "nightly"}
        key, secret = world.service.admin_key
        wrong = world.client((key, "w" * 40), "sts")
        assert code_of(wrong.assume_role, **wanted) == (403, "SignatureDoesNotMatch")
        nobody = world.client(("TARNNOBODYNOBODYNOBO", secret), "sts")
        assert code_of(nobody.assume_role, **wanted) == (403, "InvalidClientTokenId")
        sts = world.client((key, secret), "sts")
        assert code_of(sts.get_session_token) == (400, "InvalidAction")

    await asyncio.to_thread(talk)


async def test_a_key_is_asked_whose_it_is(world: Any) -> None:
    made = _keys.key_of(await world.issue())

    def talk() -> None:
        for key in (world.service.admin_key, made):
            told = world.client(key, "sts").get_caller_identity()
            assert told["Arn"] == "arn:tarn:iam:::user/root"
            assert (told["UserId"], told["Account"]) == ("root", "000000000000")
        bare = world.client(made[:2], "sts")
        assert code_of(bare.get_caller_identity) == (403, "InvalidClientTokenId")
        wrong = world.client((made[0], "w" * 40, made[2]), "sts")
        assert code_of(wrong.get_caller_identity) == (403, "SignatureDoesNotMatch")
        identity = b"Action=GetCallerIdentity&Version=2011-06-15"
        status, text = sent(world, identity + b"&RoleArn=x")
        assert (status, "ValidationError" in text) == (400, True)
        status, text = sent(world, identity.replace(b"2011", b"2010"))
        assert (status, "InvalidAction" in text) == (400, True)

    await asyncio.to_thread(talk)
    denied = [each for each in world.records() if each["outcome"] == "denied"]
    assert [each["operation"] for each in denied] == ["s3:AssumeRole"] * 2


def sent(
    world: Any, body: bytes, *, service: str = "sts", path: str = "/", after: bytes | None = None
) -> tuple[int, str]:
    """Sends a signed form; `after` replaces the body that was signed."""
    url = f"http://127.0.0.1:{world.application.port}{path}"
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    request = AWSRequest("POST", url, headers=headers, data=body)
    SigV4Auth(Credentials(*world.service.admin_key), service, "us-east-1").add_auth(request)
    data = body if after is None else after
    plain = urllib.request.Request(url, data, dict(request.headers), method="POST")
    try:
        with urllib.request.urlopen(plain) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_the_body_is_signed_and_small(world: Any) -> None:
    def talk() -> None:
        form = "&".join(f"{name}={value}" for name, value in FORM.items()).encode()
        status, text = sent(world, form)
        assert (status, "<SessionToken>" in text) == (200, True)
        status, text = sent(world, form, after=form.replace(b"nightly", b"nightlY"))
        assert (status, "SignatureDoesNotMatch" in text) == (403, True)
        for bad in (form + b"&RoleArn=x", b"", b"x", form + b"&Policy=" + b"x" * 20_000):
            assert sent(world, bad)[0] == 400
        for service, path in (("s3", "/"), ("sts", "/lake"), ("sts", "/?x")):
            status, text = sent(world, form, service=service, path=path)
            assert status >= 400
            assert "<SessionToken>" not in text

    await asyncio.to_thread(talk)

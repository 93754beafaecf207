"""The gateway's audit log: one record for each write and each refusal, with its resource and its caller."""

from __future__ import annotations

import json
from typing import Any

from tarn.core.errors import Kind, Reason

DELETE = "<Delete>{}</Delete>"
MAIN = "repository/lake/branch/main/object/"


def facts(record: dict[str, Any]) -> tuple[str, str, str, str, str]:
    names = ("operation", "resource", "outcome", "reason", "principal")
    operation, resource, outcome, reason, principal = (record[name] for name in names)
    return operation, resource, outcome, reason, principal


async def test_writes_reads_and_failures_name_their_resource_and_caller(audited: Any) -> None:
    lake, records = audited
    put = await lake.ask("PUT", "/lake/main/a", body=b"1")
    await lake.ask("PUT", "/lake/main/a", body=b"2", headers={"if-none-match": "*"})
    await lake.ask("PUT", "/lake/dev/b", headers={"x-amz-copy-source": "/lake/main/a"})
    await lake.ask("GET", "/lake/main/a")
    await lake.ask("DELETE", "/lake/main/a", key="AKIAREADER")

    found = records()
    assert put.status == 200
    assert [facts(each) for each in found] == [
        ("s3:PutObject", f"{MAIN}a", "ok", "", "akiaadmin"),
        ("s3:PutObject", f"{MAIN}a", "failed", "PreconditionFailed", "akiaadmin"),
        ("s3:CopyObject", "repository/lake/branch/dev/object/b", "ok", "", "akiaadmin"),
        ("s3:GetObject", "repository/lake/ref/main/object/a", "ok", "", "akiaadmin"),
        ("s3:DeleteObject", f"{MAIN}a", "denied", "AccessDenied", "akiareader"),
    ]
    assert found[0]["access_key_id"] == "AKIAADMIN"
    assert found[0]["request_id"] == put.line["request_id"]
    assert found[2]["details"]["copy_source"] == "/lake/main/a"


async def test_refused_headers_are_recorded_with_their_resource_and_had_no_effect(
    audited: Any,
) -> None:
    lake, records = audited
    for name in ("x-amz-expected-bucket-owner", "x-amz-security-token", "if-none-match"):
        await lake.ask("DELETE", "/lake/main/a", headers={name: "1"})
    assert [facts(each) for each in records()] == [
        ("s3:DeleteObject", f"{MAIN}a", "denied", "AccessDenied", "akiaadmin"),
        ("s3:none", "", "denied", "InvalidToken", ""),
        ("s3:DeleteObject", f"{MAIN}a", "failed", "NotImplemented", "akiaadmin"),
    ]
    assert lake.graveler.calls == []


async def test_unverified_callers_are_told_by_the_key_that_they_name(audited: Any) -> None:
    lake, records = audited
    await lake.ask("GET", "/lake/main/a", tamper="0")
    await lake.ask("PUT", "/lake/main/a", "x-secret=1", body=b"1", key="AKIANOBODY")
    await lake.ask("GET", "/lake/main/a", presign_s=60, secret="wrong")
    await lake.ask("GET", "/lake/main/a", key="")

    found = records()
    assert [(each["reason"], each["access_key_id"], each["principal"]) for each in found] == [
        ("SignatureDoesNotMatch", "AKIAADMIN", ""),
        ("InvalidAccessKeyId", "AKIANOBODY", ""),
        ("SignatureDoesNotMatch", "AKIAADMIN", ""),
        ("AccessDenied", "", "anonymous"),
    ]
    assert {(each["operation"], each["outcome"]) for each in found} == {("s3:none", "denied")}
    assert found[1]["details"]["path"] == "/lake/main/a"
    # The query of a presigned URL is a secret.
    assert "Signature=" not in json.dumps(found)
    assert "x-secret" not in json.dumps(found)


async def test_each_key_of_deleteobjects_has_a_record_with_its_own_outcome(audited: Any) -> None:
    lake, records = audited
    keys = "".join(f"<Object><Key>{key}</Key></Object>" for key in ("main/a", "none/b", "main~1/c"))
    await lake.ask("POST", "/lake", "delete", body=DELETE.format(keys).encode())
    assert [facts(each)[1:4] for each in records()] == [
        (f"{MAIN}a", "ok", ""),
        ("repository/lake/branch/none/object/b", "failed", "NoSuchBucket"),
        ("repository/lake/branch/main~1/object/c", "failed", "MethodNotAllowed"),
    ]


async def test_a_key_that_the_caller_may_not_delete_is_recorded_as_denied(audited: Any) -> None:
    lake, records = audited
    body = DELETE.format("<Object><Key>main/a</Key></Object>").encode()
    await lake.ask("POST", "/lake", "delete", body=body, key="AKIAREADER")
    assert [facts(each)[1:4] for each in records()] == [
        ("repository/lake", "denied", "AccessDenied")
    ]


async def test_a_key_beside_those_that_the_caller_may_delete_is_recorded_as_denied(
    audited: Any,
) -> None:
    lake, records = audited
    body = DELETE.format("<Object><Key>main/a</Key></Object>").encode()
    await lake.ask("POST", "/lake", "delete", body=body, key="AKIAPARTIAL")
    assert [facts(each)[1:4] for each in records()] == [(f"{MAIN}a", "denied", "AccessDenied")]


async def test_an_answer_that_was_lost_leaves_the_outcome_open(audited: Any, failure: Any) -> None:
    lake, records = audited
    lake.graveler.fail["stage"] = [failure(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN)] * 9
    await lake.ask("PUT", "/lake/main/a", body=b"1")
    (record,) = records()
    assert (record["outcome"], record["details"]["status"]) == ("unknown", 503)

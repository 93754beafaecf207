"""Browsers: preflights, the CORS headers of answers, and the operations that set the rules."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from gateway_lake import GatewayLake

from tarn.core.errors import Kind, Reason

APP = "https://app.example.com"
RULES = {
    "CORSRules": [
        {
            "AllowedOrigins": ["https://*.example.com"],
            "AllowedMethods": ["GET", "PUT"],
            "AllowedHeaders": ["x-amz-*", "Content-Type"],
            "ExposeHeaders": ["ETag"],
            "MaxAgeSeconds": 60,
        },
        {"AllowedOrigins": ["*"], "AllowedMethods": ["HEAD"]},
    ]
}
DOCUMENT = (
    b"<CORSConfiguration><CORSRule><ID>one</ID><AllowedOrigin>https://app.example.com</AllowedOrigin>"
    b"<AllowedMethod>PUT</AllowedMethod><AllowedHeader>*</AllowedHeader><ExposeHeader>ETag</ExposeHeader>"
    b"<MaxAgeSeconds>5</MaxAgeSeconds></CORSRule></CORSConfiguration>"
)


@pytest.fixture
def rules(lake: GatewayLake) -> GatewayLake:
    """`lake` and the view `sales` have rules."""
    lake.graveler.point("sales", "lake", "main")
    lake.graveler.cors = {"lake": json.dumps(RULES), "sales": json.dumps(RULES)}
    return lake


async def preflight(
    lake: GatewayLake, target: str, origin: str = APP, method: str = "PUT", headers: str = ""
) -> Any:
    sent = {"origin": origin, "access-control-request-method": method}
    if headers:
        sent["access-control-request-headers"] = headers
    return await lake.ask("OPTIONS", target, headers=sent, key="")


def shown(reply: Any) -> dict[str, str]:
    """The CORS headers of an answer."""
    start = "access-control-"
    return {n[len(start) :]: v for n, v in reply.headers.items() if n.startswith(start)}


@pytest.mark.parametrize("target", ["/lake", "/lake/main/a", "/sales/a"])
async def test_a_preflight_tells_what_a_rule_allows(rules: GatewayLake, target: str) -> None:
    reply = await preflight(rules, target, headers="X-Amz-Date, content-type,,x-amz-date")
    assert (reply.status, reply.body, reply.identified) == (200, b"", False)
    assert shown(reply) == {
        "allow-origin": APP,
        "allow-methods": "GET, PUT",
        "allow-headers": "x-amz-date, content-type",
        "expose-headers": "ETag",
        "max-age": "60",
        "allow-credentials": "true",
    }
    assert "Origin" in reply.headers["vary"]
    wildcard = await preflight(rules, target, "https://other", "HEAD")
    assert shown(wildcard) == {"allow-origin": "*", "allow-methods": "HEAD"}


async def test_a_refusal_does_not_tell_whether_a_bucket_exists(rules: GatewayLake) -> None:
    rules.create("bare")
    replies = [
        await preflight(rules, target, "https://evil", "PUT")
        for target in ("/lake/main/a", "/sales/a", "/bare/main/a", "/none/main/a", "/No!/a")
    ]
    told = {
        (reply.status, tuple(sorted(reply.headers.items())), reply.body.partition(b"<Resource>")[0])
        for reply in replies
    }
    assert len(told) == 1
    assert (replies[0].status, replies[0].code) == (403, "AccessForbidden")
    assert shown(replies[0]) == {}
    assert b"CORSResponse" in replies[0].body


@pytest.mark.parametrize(
    ("origin", "method", "headers"),
    [
        (APP, "DELETE", ""),
        (APP, "PUT", "range"),
        (APP, "PUT", ",".join(f"x-amz-{number}" for number in range(101))),
        ("https://a\x80.example.com", "PUT", ""),
        ("http://app.example.com", "PUT", ""),
    ],
)
async def test_what_no_rule_allows_is_forbidden(
    rules: GatewayLake, origin: str, method: str, headers: str
) -> None:
    reply = await preflight(rules, "/lake/main/a", origin, method, headers)
    assert (reply.status, reply.code, shown(reply)) == (403, "AccessForbidden", {})


async def test_a_preflight_must_be_one(rules: GatewayLake) -> None:
    put = {"origin": APP, "access-control-request-method": "PUT"}
    for sent in (
        {},
        {"origin": APP},
        {**put, "origin": ""},
        {**put, "access-control-request-method": "PATCH"},
        {**put, "access-control-request-headers": "x-amz-date, b\x00d"},
        {**put, "access-control-request-headers": "a b"},
    ):
        reply = await rules.ask("OPTIONS", "/lake/main/a", headers=sent, key="")
        assert (reply.status, reply.code) == (400, "BadRequest")
    assert rules.graveler.cors_asked == []
    assert (await preflight(rules, "/")).code == "AccessForbidden"


async def test_answers_and_errors_have_the_headers(rules: GatewayLake) -> None:
    origin = {"origin": APP}
    put = await rules.ask("PUT", "/sales/a", body=b"1", headers=origin)
    got = await rules.ask("GET", "/lake/main/a", headers=origin)
    missing = await rules.ask("GET", "/lake/main/none", headers=origin)
    wrong = await rules.ask("GET", "/lake/main/a", headers=origin, tamper="0")
    anonymous = await rules.ask("GET", "/lake/main/a", headers=origin, key="")
    assert [each.status for each in (put, got, missing, wrong, anonymous)] == [
        200,
        200,
        404,
        403,
        403,
    ]
    for reply in (put, got, missing, wrong, anonymous):
        assert (shown(reply)["allow-origin"], reply.headers["vary"]) == (APP, "Origin")
    deleted = await rules.ask("DELETE", "/lake/main/a", headers=origin)
    assert (deleted.status, shown(deleted), deleted.headers["vary"]) == (204, {}, "Origin")
    plain = await rules.ask("GET", "/lake/main/a")
    assert (shown(plain), "vary" in plain.headers) == ({}, False)
    listed = await rules.ask("GET", "/", headers=origin)
    assert (listed.status, shown(listed)) == (200, {})


async def test_rules_are_cached_and_names_without_rules_too(rules: GatewayLake) -> None:
    for _ in range(3):
        await preflight(rules, "/lake/main/a")
        await preflight(rules, "/none/a")
        await rules.ask("GET", "/lake/main/a", headers={"origin": APP})
    assert rules.graveler.cors_asked == ["lake", "none"]
    rules.graveler.cors["lake"] = ""
    assert (await preflight(rules, "/lake/main/a")).status == 200
    rules.clock.advance(6.0)
    assert (await preflight(rules, "/lake/main/a")).status == 403


async def test_strangers_cannot_have_many_names_looked_up(rules: GatewayLake) -> None:
    assert (await preflight(rules, "/lake/main/a")).status == 200
    replies = [await preflight(rules, f"/name-{number}/a") for number in range(200)]
    asked = len(rules.graveler.cors_asked)
    assert asked <= 51
    assert {reply.code for reply in replies} == {"AccessForbidden", "SlowDown"}
    # A bucket with rules stays usable, also when they have to be read again.
    rules.clock.advance(5.0)
    for number in range(200):
        await preflight(rules, f"/other-{number}/a")
    assert (await preflight(rules, "/lake/main/a")).status == 200
    # An answer to a user does not fail for want of rules.
    put = await rules.ask("PUT", "/sales/a", body=b"1", headers={"origin": APP})
    assert (put.status, shown(put)) == (200, {})


async def test_concurrent_preflights_share_a_look_up(rules: GatewayLake) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(preflight(rules, "/lake/main/a"))
    assert rules.graveler.cors_asked == ["lake"]


async def test_a_failed_look_up_is_no_refusal(rules: GatewayLake, failure: Any) -> None:
    def fails(kind: Kind) -> None:
        rules.graveler.fail["GetBucketCors"] = [failure(kind, Reason.OVERLOADED)]

    fails(Kind.UNAVAILABLE)
    reply = await preflight(rules, "/lake/main/a")
    assert (reply.status, reply.code) == (503, "ServiceUnavailable")
    fails(Kind.UNAVAILABLE)
    got = await rules.ask("GET", "/lake", "location", headers={"origin": APP})
    assert (got.status, shown(got)) == (200, {})
    fails(Kind.UNIMPLEMENTED)  # a replica of the last release
    assert (await preflight(rules, "/lake/main/a")).code == "AccessForbidden"


async def test_those_who_wait_for_a_look_up_share_its_failure(
    rules: GatewayLake, failure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow_token(_: object) -> str:
        await asyncio.sleep(0.01)
        return "t1.gateway"

    monkeypatch.setattr(rules.backend.cors, "_own_token", slow_token)
    rules.graveler.fail["GetBucketCors"] = [failure(Kind.UNAVAILABLE, Reason.OVERLOADED)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(preflight(rules, "/lake/main/a")) for _ in range(5)]
    assert {task.result().status for task in tasks} == {503}
    assert rules.graveler.cors_asked == ["lake"]


# ---- GetBucketCors, PutBucketCors, DeleteBucketCors


@pytest.mark.parametrize("bucket", ["lake", "sales"])
async def test_rules_are_set_read_and_deleted(lake: GatewayLake, bucket: str) -> None:
    lake.graveler.point("sales", "lake", "main")
    none = await lake.ask("GET", f"/{bucket}", "cors")
    assert (none.status, none.code) == (404, "NoSuchCORSConfiguration")
    assert (await preflight(lake, f"/{bucket}/a")).status == 403
    put = await lake.ask("PUT", f"/{bucket}", "cors", DOCUMENT)
    assert (put.status, put.body) == (200, b"")
    got = await lake.ask("GET", f"/{bucket}", "cors")
    assert got.all("ID") == ["one"]
    assert DOCUMENT.partition(b"<CORSRule>")[2] in got.body
    assert (await preflight(lake, f"/{bucket}/a")).status == 200
    assert (await lake.ask("DELETE", f"/{bucket}", "cors")).status == 204
    assert (await lake.ask("DELETE", f"/{bucket}", "cors")).status == 204
    assert (await preflight(lake, f"/{bucket}/a")).status == 403


async def test_who_may_set_rules(lake: GatewayLake) -> None:
    lake.graveler.point("sales", "lake", "main")
    for bucket in ("lake", "sales"):
        for method, body in (("PUT", DOCUMENT), ("DELETE", b"")):
            for key in ("AKIAWRITER", "AKIAREADER"):
                reply = await lake.ask(method, f"/{bucket}", "cors", body, key=key)
                assert (reply.status, reply.code) == (403, "AccessDenied")
    assert lake.graveler.cors == {}


async def test_rules_of_a_bucket_that_is_gone(lake: GatewayLake) -> None:
    for method, body in (("GET", b""), ("PUT", DOCUMENT), ("DELETE", b"")):
        reply = await lake.ask(method, "/none", "cors", body)
        assert (reply.status, reply.code) == (404, "NoSuchBucket")


def rule(inner: str = "<AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>") -> str:
    return f"<CORSRule>{inner}</CORSRule>"


@pytest.mark.parametrize(
    ("rules_xml", "code"),
    [
        ("", "MalformedXML"),
        (rule(""), "MalformedXML"),
        (rule("<AllowedOrigin>*</AllowedOrigin>"), "MalformedXML"),
        ("<Other/>", "MalformedXML"),
        (rule("<MaxAgeSeconds>x</MaxAgeSeconds>"), "MalformedXML"),
        (rule("<ID>a</ID><ID>b</ID>"), "MalformedXML"),
        (rule().replace("GET", "OPTIONS"), "InvalidRequest"),
        (rule().replace("*", "a**"), "InvalidRequest"),
        (rule() * 101, "InvalidRequest"),
        (rule().replace("*", "https://" + "a" * 480) * 20, "InvalidRequest"),
        (rule() + " " * 65536, "MaxMessageLengthExceeded"),
    ],
)
async def test_documents_that_are_refused(lake: GatewayLake, rules_xml: str, code: str) -> None:
    body = f"<CORSConfiguration>{rules_xml}</CORSConfiguration>".encode()
    reply = await lake.ask("PUT", "/lake", "cors", body)
    assert (reply.status, reply.code) == (400, code)
    assert lake.graveler.cors == {}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ("<AllowedOrigin>*</AllowedOrigin><AllowedMethod>put</AllowedMethod>",
         "Found unsupported HTTP method in CORS config. Unsupported method is put"),
        ("<AllowedOrigin>http://***</AllowedOrigin><AllowedMethod>GET</AllowedMethod>",
         'AllowedOrigin "http://***" can not have more than one wildcard.'),
        ("<AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>"
         "<AllowedHeader>X(Custom)</AllowedHeader>",
         'AllowedHeader "X(Custom)" contains invalid character.'),
        ("<AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>"
         "<ExposeHeader>a b</ExposeHeader>",
         'ExposeHeader "a b" contains invalid character.'),
    ],
)  # fmt: skip
async def test_a_value_that_is_refused_is_named(lake: GatewayLake, fields: str, told: str) -> None:
    body = f"<CORSConfiguration>{rule(fields)}</CORSConfiguration>".encode()
    reply = await lake.ask("PUT", "/lake", "cors", body)
    assert (reply.code, reply.message) == ("InvalidRequest", told)


async def test_a_negative_age_is_kept_as_in_s3(lake: GatewayLake) -> None:
    body = DOCUMENT.replace(b"<MaxAgeSeconds>5<", b"<MaxAgeSeconds>-100<")
    assert (await lake.ask("PUT", "/lake", "cors", body)).status == 200
    assert (await lake.ask("GET", "/lake", "cors")).all("MaxAgeSeconds") == ["-100"]


async def test_changes_of_rules_are_audited_as_writes(audited: Any) -> None:
    lake, records = audited
    await lake.ask("PUT", "/lake", "cors", DOCUMENT)
    assert [(each["operation"], each["resource"]) for each in records()] == [
        ("s3:PutBucketCors", "repository/lake")
    ]

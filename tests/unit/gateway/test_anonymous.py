"""Requests without a signature: they read public-read bucket views and learn of nothing else, at a limited rate."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_lake import GatewayLake

from tarn.client.auth import SigningGrant
from tarn.core.access.policy import Binding, Grant, Policy
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UserId
from tarn.gate.addresses import network_of
from tarn_gateway.anonymous import AnonymousBounds, AnonymousRequests
from tarn_gateway.http import BodyReader, Exchange, Headers, Request
from tarn_gateway.requests.address import Address
from tarn_gateway.trace import Trace

ALL_USERS = "http://acs.amazonaws.com/groups/global/AllUsers"


@pytest.fixture
async def view(lake: GatewayLake) -> GatewayLake:
    """`sales` shows `lake/main` to everyone, `inner` to users; both have the object `a`."""
    lake.graveler.point("sales", "lake", "main", public_read=True)
    lake.graveler.point("inner", "lake", "main")
    assert (await lake.ask("PUT", "/inner/a", body=b"rows")).status == 200
    return lake


async def anonymous(
    lake: GatewayLake, method: str, target: str, query: str = "", **more: Any
) -> Any:
    return await lake.ask(method, target, query, key="", **more)


async def test_everyone_reads_and_lists_a_public_view(view: GatewayLake) -> None:
    got = await anonymous(view, "GET", "/sales/a")
    assert (got.status, got.body, got.line["user"]) == (200, b"rows", "anonymous")
    assert not got.identified, "its connection stays among those of strangers"
    head = await anonymous(view, "HEAD", "/sales/a")
    assert (head.status, head.headers["content-length"]) == (200, "4")
    part = await anonymous(view, "GET", "/sales/a", headers={"range": "bytes=1-2"})
    assert (part.status, part.body) == (206, b"ow")
    for query in ("", "list-type=2", "prefix=AWS", "list-type=2&prefix=X-Amz-Signature"):
        assert (await anonymous(view, "GET", "/sales", query)).status == 200
    assert (await anonymous(view, "GET", "/sales", "list-type=2")).all("Key") == ["a"]
    assert (await anonymous(view, "GET", "/sales/b")).code == "NoSuchKey"
    by_host = await anonymous(view, "GET", "/a", host="sales.s3.test")
    assert by_host.body == b"rows"


@pytest.mark.parametrize(
    ("method", "target", "query"),
    [
        ("GET", "/", ""),
        ("HEAD", "/sales", ""),
        ("GET", "/sales", "acl"),
        ("GET", "/sales", "policyStatus"),
        ("GET", "/sales", "versions"),
        ("GET", "/sales", "uploads"),
        ("GET", "/sales", "cors"),
        ("GET", "/sales", "inventory"),
        ("GET", "/sales", "list-type=3"),
        ("GET", "/sales/a", "attributes"),
        ("GET", "/sales/a", "acl"),
        ("GET", "/sales/a", "torrent"),
        ("GET", "/sales/a", "uploadId=u"),
        ("PUT", "/sales/a", ""),
        ("PUT", "/sales/a", "acl"),
        ("PUT", "/sales", "cors"),
        ("DELETE", "/sales/a", ""),
        ("DELETE", "/sales", ""),
        ("POST", "/sales", "delete"),
        ("POST", "/sales/a", "uploads"),
        ("PATCH", "/sales/a", ""),
        ("GET", "/inner/a", ""),
        ("GET", "/inner", "list-type=2"),
        ("GET", "/lake/main/a", ""),
        ("GET", "/lake", "list-type=2&prefix=main/"),
        ("GET", "/none/a", ""),
        ("GET", "/No_Bucket/a", ""),
    ],
)
async def test_everything_else_is_the_same_refusal(
    view: GatewayLake, method: str, target: str, query: str
) -> None:
    before = list(view.graveler.calls)
    reply = await anonymous(view, method, target, query, body=b"x" * (method in ("PUT", "POST")))
    assert reply.status == 403
    if method != "HEAD":
        assert reply.code == "AccessDenied"
        assert "Anonymous requests are not allowed." in reply.body.decode()
    assert (view.graveler.calls, reply.reads) == (before, 0)


async def test_tags_are_not_public(view: GatewayLake) -> None:
    await view.ask("PUT", "/sales/t", body=b"1", headers={"x-amz-tagging": "a=b"})
    assert (await view.ask("GET", "/sales/t")).headers["x-amz-tagging-count"] == "1"
    assert "x-amz-tagging-count" not in (await anonymous(view, "GET", "/sales/t")).headers
    assert (await anonymous(view, "GET", "/sales/t", "tagging")).code == "AccessDenied"


async def test_half_of_an_authentication_is_no_anonymous_request(view: GatewayLake) -> None:
    for headers in (
        {"authorization": ""},
        {"authorization": "Bearer x"},
        {"x-amz-security-token": "t"},
    ):
        reply = await anonymous(view, "GET", "/sales/a", headers=headers)
        assert reply.status in (400, 403)
    for query in ("X-Amz-Signature=0", "AWSAccessKeyId=x", "X-Amz-Credential=x"):
        assert (await anonymous(view, "GET", "/sales/a", query)).status in (400, 403)


async def test_answers_have_the_headers_of_the_object(view: GatewayLake) -> None:
    for name in ("response-content-type", "response-expires"):
        reply = await anonymous(view, "GET", "/sales/a", f"{name}=text/html")
        assert (reply.status, reply.code) == (400, "InvalidRequest")


async def test_graveler_refuses_what_a_cached_public_view_would_allow(view: GatewayLake) -> None:
    """What the gateway keeps of the view is some seconds old."""
    assert (await anonymous(view, "GET", "/sales/a")).status == 200
    view.graveler.views["sales"].public_read = False
    for target, query in (("/sales/a", ""), ("/sales", "list-type=2"), ("/sales", "max-keys=0")):
        reply = await anonymous(view, "GET", target, query)
        assert (reply.status, reply.code) == (403, "AccessDenied")
        assert "lake" not in reply.body.decode(), "it does not tell what the view shows"


async def test_a_view_that_was_pointed_elsewhere_is_followed_while_it_is_public(
    view: GatewayLake,
) -> None:
    await view.ask("PUT", "/lake/dev/a", body=b"new")
    assert (await anonymous(view, "GET", "/sales/a")).body == b"rows"
    view.graveler.point("sales", "lake", "dev", public_read=True)
    assert (await anonymous(view, "GET", "/sales/a")).body == b"new"
    # One of the same name that is not public.
    view.graveler.point("sales", "lake", "main")
    reply = await anonymous(view, "GET", "/sales/a")
    assert (reply.status, reply.code) == (403, "AccessDenied")


async def test_a_mark_is_noticed_when_the_name_is_looked_up_again(view: GatewayLake) -> None:
    assert (await anonymous(view, "GET", "/inner/a")).status == 403
    view.graveler.views["inner"].public_read = True
    view.clock.advance(6.0)
    assert (await anonymous(view, "GET", "/inner/a")).status == 200


async def test_browsers_use_public_views_as_others(view: GatewayLake) -> None:
    view.graveler.cors["sales"] = (
        '{"CORSRules":[{"AllowedOrigins":["https://a.example"],"AllowedMethods":["GET"]}]}'
    )
    reply = await anonymous(view, "GET", "/sales/a", headers={"origin": "https://a.example"})
    assert reply.headers["access-control-allow-origin"] == "https://a.example"


async def test_a_binding_makes_nothing_public(view: GatewayLake) -> None:
    """A name that a session key binds means that to its holder only, also if a public view has it."""
    bindings = (Binding("sales", "lake", "dev"),)
    grant = Grant(UserId("ada"), Policy(()), "token-of-ada", 1000, bindings=bindings)
    wanted = Request("GET", b"/sales/a", b"", Headers([]), BodyReader(0), request_id="1")
    granted, now = SigningGrant(b"", grant), view.clock.monotonic()
    place = await view.backend.resolve(wanted, granted, "sales", now)
    assert (place.ref, place.is_public) == ("dev", False)


# ---- bounds


async def test_names_that_strangers_make_up_are_looked_up_at_a_limited_rate(
    view: GatewayLake,
) -> None:
    replies = [await anonymous(view, "GET", f"/no-bucket-{i}/a") for i in range(60)]
    assert [reply.code for reply in replies] == ["AccessDenied"] * 50 + ["SlowDown"] * 10
    assert len([name for name in view.graveler.views_asked if "no-bucket" in name]) == 50
    # A name that is known costs no look-up.
    assert (await anonymous(view, "GET", "/no-bucket-1/a")).code == "AccessDenied"


@pytest.fixture
def slow(view: GatewayLake) -> GatewayLake:
    """Three requests per second, two of one address, one at a time more than that."""
    view.handler._anonymous = AnonymousRequests(view.backend, AnonymousBounds(3.0, 2.0, 3))
    return view


async def test_requests_of_one_address_and_of_all_are_limited(slow: GatewayLake) -> None:
    async def ask() -> Any:
        return await anonymous(slow, "GET", "/sales/a")

    assert [(await ask()).status for _ in range(3)] == [200, 200, 503]
    refused = await ask()
    assert (refused.code, refused.headers["retry-after"]) == ("SlowDown", "1")
    assert (await slow.ask("GET", "/sales/a")).status == 200, "users are not slowed down"
    slow.clock.advance(1.0)
    assert (await ask()).status == 200


async def test_addresses_are_told_apart_within_the_rate_of_all(slow: GatewayLake) -> None:
    def request(remote: str) -> Request:
        pairs = [("host", "s3.test")]
        return Request(
            "GET",
            b"/sales/a",
            b"",
            Headers(pairs),
            BodyReader(0),
            request_id=remote,
            remote_addr=remote,
        )

    statuses = []
    for remote in ("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.2:1", "10.0.0.3:1"):
        wanted = request(remote)
        try:
            response = await slow.handler(wanted)
        except Exception as error:  # noqa: BLE001 - as the HTTP server does
            response = slow.handler.refuse(wanted, error)
        statuses.append(response.status)
        slow.traces.end(Exchange(wanted, response.status, 0, 0, 0.001, None))
    assert statuses == [200, 200, 503, 200, 503]


async def test_answers_that_are_not_sent_yet_are_limited(view: GatewayLake) -> None:
    admitted = AnonymousRequests(view.backend, AnonymousBounds(1000.0, 1000.0, 2))
    assert (await anonymous(view, "GET", "/sales/a")).status == 200
    traces = [Trace() for _ in range(3)]
    pairs = Headers([("host", "s3.test")])
    wanted = Request(
        "GET", b"/sales/a", b"", pairs, BodyReader(0), request_id="1", remote_addr="10.0.0.1:1"
    )
    address = Address("sales", "a")
    for trace in traces[:2]:
        await admitted.enter(wanted, address, view.clock.monotonic(), trace)
    with pytest.raises(Exception, match="2 anonymous requests run already"):
        await admitted.enter(wanted, address, view.clock.monotonic(), traces[2])
    assert traces[2].on_end is None
    assert traces[0].on_end is not None
    traces[0].on_end()
    await admitted.enter(wanted, address, view.clock.monotonic(), traces[2])


async def test_requests_leave_their_place_whatever_becomes_of_them(view: GatewayLake) -> None:
    lost = TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "as told")
    view.graveler.fail["lookup"] = [lost] * 3
    for _ in range(3):
        assert (await anonymous(view, "GET", "/sales/a")).status == 503
    assert (await anonymous(view, "GET", "/sales/b")).status == 404
    assert view.handler._anonymous._running == 0


@pytest.mark.parametrize(
    ("remote", "network"),
    [
        ("10.1.2.3:80", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6:80", "2001:db8:1:2::/64"),
        ("::ffff:10.1.2.3:80", "::ffff:10.1.2.3"),
        ("fe80::1%eth0:80", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_network_of_ipv6_counts_as_one_address(remote: str, network: str) -> None:
    assert network_of(remote) == network


# ---- the audit log, and what the view says of itself


async def test_anonymous_requests_are_audited(audited: Any) -> None:
    lake, records = audited
    lake.graveler.point("sales", "lake", "main", public_read=True)
    await lake.ask("PUT", "/sales/a", body=b"1")
    for target in ("/sales/a", "/lake/main/a"):
        await lake.ask("GET", target, key="")
    names = ("operation", "outcome", "principal", "access_key_id")
    assert [tuple(each[name] for name in names) for each in records()[1:]] == [
        ("s3:GetObject", "ok", "anonymous", ""),
        ("s3:none", "denied", "anonymous", ""),
    ]


async def test_a_public_view_says_so(view: GatewayLake) -> None:
    for bucket, is_public in (("sales", True), ("inner", False)):
        for target in (f"/{bucket}", f"/{bucket}/a"):
            acl = await view.ask("GET", target, "acl")
            assert acl.all("URI") == [ALL_USERS] * is_public
            assert acl.all("Permission") == ["FULL_CONTROL", *["READ"] * is_public]
        status = await view.ask("GET", f"/{bucket}", "policyStatus")
        if is_public:
            assert status.all("IsPublic") == ["true"]
        else:
            assert status.code == "NoSuchBucketPolicy"
        block = await view.ask("GET", f"/{bucket}", "publicAccessBlock")
        for name in ("IgnorePublicAcls", "RestrictPublicBuckets"):
            assert block.all(name) == [str(not is_public).lower()]
        for name in ("BlockPublicAcls", "BlockPublicPolicy"):
            assert block.all(name) == ["true"]


async def test_what_would_make_it_private_is_refused_and_what_is_so_accepted(
    view: GatewayLake,
) -> None:
    block = await view.ask("GET", "/inner", "publicAccessBlock")
    for bucket, private in (("sales", 501), ("inner", 200)):
        same = await view.ask("GET", f"/{bucket}", "publicAccessBlock")
        done = await view.ask("PUT", f"/{bucket}", "publicAccessBlock", same.body)
        assert done.status == 200
        done = await view.ask("PUT", f"/{bucket}", "publicAccessBlock", block.body)
        assert done.status == private
        for target in (f"/{bucket}", f"/{bucket}/a"):
            done = await view.ask("PUT", target, "acl", headers={"x-amz-acl": "private"})
            assert (done.status == 200) is (private == 200)
            acl = (await view.ask("GET", target, "acl")).body
            done = await view.ask("PUT", target, "acl", acl)
            assert (done.status == 200) is (private == 200)


async def test_no_canned_acl_makes_a_bucket_public(view: GatewayLake) -> None:
    headers = {"x-amz-acl": "public-read"}
    for target, query in (("/fresh", ""), ("/inner", "acl"), ("/sales", "acl"), ("/inner/a", "")):
        reply = await view.ask("PUT", target, query, headers=headers)
        assert reply.code == "AccessControlListNotSupported"

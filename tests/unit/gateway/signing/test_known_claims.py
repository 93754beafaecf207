"""What is remembered of verified requests changes no answer: neither who is let in, nor the refusal of others."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarn_auth.authorizer import signing_key
from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing import sigv4
from tarn_gateway.signing.canonical import received_form, tail_of
from tarn_gateway.signing.sigv4 import SigV4Policy, parse_authorization, seconds_of, verify

DAY = "20130524"
TIMES = st.sampled_from(
    [f"{DAY}T000000Z", f"{DAY}T000001Z", f"{DAY}T001500Z", f"{DAY}T99", "", None]
)
KEYS = {key: signing_key("secret", DAY, "us-east-1", "s3") for key in ("AKIA", "AKIB")}
KEYS["AKIB"] = signing_key("another secret", DAY, "us-east-1", "s3")
EMPTY = hashlib.sha256().hexdigest()
BASE = "host;x-amz-content-sha256;x-amz-date"
POLICIES = st.sampled_from(
    [SigV4Policy(), SigV4Policy(region="us-east-1"), SigV4Policy(region="eu")]
)

Wire = tuple[str, str, dict[str, str]]


def signed(wire: Wire, scope: str, names: str, payload_hash: str) -> dict[str, str]:
    """Headers with the signature that a client with the key makes."""
    method, path, headers = wire
    tail = tail_of(Headers(headers.items()), names.split(";"), payload_hash)
    digest = hashlib.sha256(received_form(method, path.encode(), b"", tail)).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{headers.get('x-amz-date', '')}\n{scope.partition('/')[2]}\n{digest}"
    key = KEYS[scope.partition("/")[0]]
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    claim = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "authorization": claim}


@st.composite
def requests(draw: st.DrawFn) -> Wire:
    """Requests of two users, most of them right, each of which may be changed after it was signed."""
    headers = {"host": draw(st.sampled_from(["h", "h", "other"]))}
    if (time := draw(TIMES)) is not None:
        headers["x-amz-date"] = time
    headers["x-amz-content-sha256"] = draw(st.sampled_from([EMPTY, EMPTY, "UNSIGNED-PAYLOAD", "x"]))
    names = BASE
    for name in draw(st.sets(st.sampled_from(["x-amz-meta-a", "range", "x-amz-security-token"]))):
        headers[name] = draw(st.sampled_from(["1", "2", "a  b"]))
        if draw(st.sampled_from([True, True, False])):
            names += f";{name}"
    names = draw(st.sampled_from([names, names, names, "x-amz-date", f"{names};absent", "host"]))
    key = draw(st.sampled_from(list(KEYS)))
    day, region = (
        draw(st.sampled_from([DAY, DAY, "20130525"])),
        draw(st.sampled_from(["us-east-1", "eu"])),
    )
    wire = (
        draw(st.sampled_from(["GET", "HEAD"])),
        draw(st.sampled_from(["/a", "/b c", "/%41"])),
        headers,
    )
    scope = f"{key}/{day}/{region}/{draw(st.sampled_from(['s3', 's3', 'sts']))}/aws4_request"
    sent = signed(wire, scope, names, headers["x-amz-content-sha256"])
    match draw(st.integers(0, 9)):
        case 0:
            sent["x-amz-date"] = f"{DAY}T000001Z"
        case 1:
            sent["x-amz-meta-a"] = "3"
        case 2:
            sent["x-amz-added"] = "1"
        case 3:
            sent["authorization"] = sent["authorization"][:-1] + draw(st.sampled_from("0aG\xe9"))
        case 4:
            sent["authorization"] = sent["authorization"].replace(scope, f"AKIB{scope[4:]}")
        case 5:
            sent.pop(draw(st.sampled_from(sorted(sent))))
        case 6:
            return wire[0], "/other", sent
        case _:
            pass
    return wire[0], wire[1], sent


def outcome(wire: Wire, now: str, policy: SigV4Policy) -> object:
    method, path, headers = wire
    request = Request(method, path.encode(), b"", Headers(headers.items()), BodyReader(0))
    now_s = seconds_of(now)
    assert now_s is not None
    try:
        found = parse_authorization(request, now_s * 1_000_000, policy)
        verify(found, KEYS.get(found.access_key_id, b"none"))
    except S3Error as error:
        return error.code, error.message, error.extra
    return found[:8], found.headers


@settings(max_examples=600)
@given(
    st.lists(
        st.tuples(requests(), st.sampled_from([f"{DAY}T000000Z", f"{DAY}T001501Z"]), POLICIES),
        min_size=2,
        max_size=8,
    )
)
def test_a_request_has_the_same_answer_whatever_was_verified_before(
    asked: list[tuple[Wire, str, SigV4Policy]],
) -> None:
    cold = []
    for one in asked:
        sigv4._remembered_claim.cache_clear()
        cold.append(outcome(*one))
    sigv4._remembered_claim.cache_clear()
    assert [outcome(*one) for one in [*asked, *asked]] == [*cold, *cold]


def right(path: str = "/a", **more: str) -> Wire:
    headers = {"host": "h", "x-amz-date": f"{DAY}T000000Z", "x-amz-content-sha256": EMPTY, **more}
    scope = f"AKIA/{DAY}/us-east-1/s3/aws4_request"
    return "GET", path, signed(("GET", path, headers), scope, BASE, EMPTY)


def test_the_second_request_is_verified_with_what_the_first_one_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without this, the test above could compare the general way with itself."""
    sigv4._remembered_claim.cache_clear()
    now = f"{DAY}T000000Z"
    assert isinstance(outcome(right(), now, SigV4Policy())[0], tuple)  # type: ignore[index]
    monkeypatch.setattr(sigv4, "tail_of", None)
    monkeypatch.setattr(sigv4, "_header_time", None)
    assert isinstance(outcome(right("/b"), now, SigV4Policy())[0], tuple)  # type: ignore[index]


def test_nothing_is_remembered_of_a_request_whose_signature_is_wrong() -> None:
    sigv4._remembered_claim.cache_clear()
    method, path, headers = right()
    wrong = {**headers, "authorization": headers["authorization"][:-64] + "0" * 64}
    outcome((method, path, wrong), f"{DAY}T000000Z", SigV4Policy())
    claim, _ = sigv4._remembered_claim(headers["authorization"][:-64], None, "s3")
    assert claim.known is None
    outcome((method, path, headers), f"{DAY}T000000Z", SigV4Policy())
    assert claim.known is not None
    assert "x-amz-date:" not in repr(claim.known)  # its texts may hold a session token

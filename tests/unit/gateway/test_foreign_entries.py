"""Entries that no S3 client could have stored: read, listed and copied without a server error, and nothing injected.

Graveler validates entries, but it keeps what earlier releases took. Each head passes through the real writer.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from gateway_lake import GatewayLake

from tarn.core.entry import Checksum, pack
from tarn_gateway.http import Response
from tarn_gateway.http.response_writer import Framing, render_head

INJECTED = "text/html\r\nSet-Cookie: a=b"

FOREIGN: dict[str, dict[str, Any]] = {
    "content type": {"content_type": INJECTED},
    "no Latin-1": {"content_type": "\u2603", "cache_control": "\u2603"},
    "other headers": {"cache_control": INJECTED, "expires": INJECTED, "content_encoding": "\0"},
    "metadata names": {"metadata": (("a\r\nX: y", "v"), ("a b:c", "v"), ("\u2603", "v"))},
    "metadata values": {"metadata": (("a", INJECTED), ("b", "\u2603"))},
    "checksums": {"checksums": (Checksum("X><Y\r\n", "v"), Checksum("CRC32", INJECTED))},
    "time after all calendars": {"mtime_us": 2**63 - 1},
    "time before all calendars": {"mtime_us": -(2**63)},
    "size": {"size": 2**63 - 1},
    "parts": {"etag_parts": 2**32 - 1},
}


def sent(reply: Any) -> bytes:
    """The head as it goes over the wire."""
    headers = [pair for pair in reply.headers.items() if pair[0] != "content-length"]
    framing = Framing(0, chunked=False, connection="")
    return render_head(Response(reply.status, headers), "", "1", framing, "total;dur=0.1")


@pytest.fixture
def place(lake: GatewayLake) -> Any:
    async def place(name: str) -> Any:
        await lake.ask("PUT", "/lake/main/b", body=b"text")
        entry = dataclasses.replace(lake.entry("lake", "main", "b"), **FOREIGN[name])
        lake.graveler.repos["lake"].branches["main"]["a"] = pack(entry)
        return lake

    return place


@pytest.mark.parametrize("name", FOREIGN)
async def test_it_is_shown_without_what_cannot_be_shown(place: Any, name: str) -> None:
    lake = await place(name)
    checksum_mode = {"x-amz-checksum-mode": "ENABLED"}
    for headers in ({}, checksum_mode):
        head = await lake.ask("HEAD", "/lake/main/a", headers=headers)
        assert head.status == 200
        assert b"Set-Cookie" not in sent(head)
        assert "\r" not in "".join(head.headers.values())
        assert len(head.headers["last-modified"]) == len("Thu, 01 Jan 1970 00:00:00 GMT")
    unchanged = await lake.ask("GET", "/lake/main/a", headers={"If-None-Match": "*"})
    assert unchanged.status == 304
    assert b"Set-Cookie" not in sent(unchanged)


@pytest.mark.parametrize("name", FOREIGN)
async def test_an_entry_of_another_program_breaks_no_listing(place: Any, name: str) -> None:
    lake = await place(name)
    for query in ("list-type=2&prefix=main/", "prefix=main/", "", "list-type=2&encoding-type=url"):
        listed = await lake.ask("GET", "/lake", query)
        assert listed.status == 200
        assert listed.all("Key") == ["main/a", "main/b"]
        assert all(
            len(time) == len("1970-01-01T00:00:00.000Z") for time in listed.all("LastModified")
        )


@pytest.mark.parametrize("name", FOREIGN)
async def test_it_is_copied_without_what_cannot_be_shown(place: Any, name: str) -> None:
    lake = await place(name)
    for headers in ({}, {"x-amz-checksum-algorithm": "SHA256"}):
        if headers and name == "size":
            continue  # its bytes cannot be read
        copied = await lake.ask(
            "PUT", "/lake/main/copy", headers={"x-amz-copy-source": "/lake/main/a", **headers}
        )
        assert copied.status == 200
        assert copied.all("ETag")
        assert b"Set-Cookie" not in copied.body
        assert lake.entry("lake", "main", "copy").mtime_us == lake.clock.now_us()


async def test_the_browser_gets_a_sandbox_with_each_object(lake: GatewayLake) -> None:
    page = {"Content-Type": "text/html"}
    etag = (await lake.ask("PUT", "/lake/main/a.html", body=b"<script>", headers=page)).headers[
        "etag"
    ]
    for method in ("GET", "HEAD"):
        for headers in ({}, {"Range": "bytes=0-1"}, {"If-None-Match": etag}):
            reply = await lake.ask(method, "/lake/main/a.html", headers=headers)
            assert reply.status in (200, 206, 304)
            assert reply.headers["content-security-policy"] == "sandbox"
    query = "response-content-type=text%2Fhtml"
    presigned = await lake.ask("GET", "/lake/main/a.html", query, presign_s=60)
    assert presigned.headers["content-type"] == "text/html"
    assert presigned.headers["content-security-policy"] == "sandbox"
    assert (await lake.ask("HEAD", "/lake/main/")).headers["content-security-policy"] == "sandbox"


async def test_an_unchanged_object_has_the_headers_of_caches(lake: GatewayLake) -> None:
    """RFC 9110 §15.4.5: those that a full answer would have."""
    kept = {
        "Cache-Control": "max-age=60",
        "Expires": "Thu, 01 Dec 1994 16:00:00 GMT",
        "x-amz-meta-a": "b",
    }
    await lake.ask("PUT", "/lake/main/a", body=b"text", headers=kept)
    full = await lake.ask("GET", "/lake/main/a")
    unchanged = await lake.ask("GET", "/lake/main/a", headers={"If-None-Match": "*"})
    assert unchanged.status == 304
    for name in ("etag", "last-modified", "cache-control", "expires"):
        assert unchanged.headers[name] == full.headers[name]
    assert {"content-type", "x-amz-meta-a"}.isdisjoint(unchanged.headers)
    query = "response-cache-control=no-store"
    changed = await lake.ask("GET", "/lake/main/a", query, headers={"If-None-Match": "*"})
    assert changed.headers["cache-control"] == "no-store"


async def test_listings_and_errors_are_xml(lake: GatewayLake) -> None:
    for target, query in (("/", ""), ("/lake", "prefix=main/"), ("/lake/main/<script>", "")):
        assert (await lake.ask("GET", target, query)).headers["content-type"] == "application/xml"
    assert b"<script>" not in (await lake.ask("GET", "/lake/main/<script>")).body

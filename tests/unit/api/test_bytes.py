"""The bytes of objects through the endpoint: uploads, downloads and copies."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from rest_service import Rest, basic, running_rest

from tarn.block.port import CHUNK_BYTES, BlockKey
from tarn.core.entry import unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.objects.conditions import ReadAnswer
from tarn.telemetry.audit.record import Outcome
from tarn_api.bodies import BodyBounds
from tarn_api.http import HttpBounds, HttpServer

OBJECTS = "/repositories/lake/branches/main/objects"
REFS = "/repositories/lake/refs/main/objects"
LARGE = bytes(range(256)) * 12_000
FORM = "multipart/form-data; boundary=xyz"


def form(body: bytes, name: str = "content", kind: str = "text/csv") -> bytes:
    head = f'--xyz\r\nContent-Disposition: form-data; name="{name}"; filename="f"\r\n'
    return f"{head}Content-Type: {kind}\r\n\r\n".encode() + body + b"\r\n--xyz--\r\n"


def pieces_of(body: bytes, size: int = 70_000) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


async def put(rest: Rest, path: str, body: bytes, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await rest.ask("POST", f"{OBJECTS}?path={path}", body, headers=named)
    assert answer.status == 201, answer.body
    return answer.json


async def blocks_of(rest: Rest) -> list[str]:
    objects = rest.endpoint._backend.objects
    await objects.removals.drain(10.0)
    lake = await rest.service.graveler.get_repository(rest.service.admin, "lake")
    found = await objects.blocks.list_page(lake.storage_namespace, "data/", "", 100)
    return [each.path for each in found]


async def user(rest: Rest, name: str, role: str) -> str:
    service = rest.service
    await service.auth.create_user(service.admin, name, [role])
    made = await service.auth.create_credential(service.admin, user_id=name)
    return basic(made.credential.access_key_id, made.secret_access_key)


@pytest.mark.parametrize("body", [b"id\n1\n", LARGE])
@pytest.mark.parametrize("way", ["raw", "chunks", "form", "form in chunks"])
async def test_an_object_comes_back_as_it_was_sent(rest: Rest, body: bytes, way: str) -> None:
    is_form = way.startswith("form")
    sent = form(body) if is_form else body
    headers = {"content-type": FORM if is_form else "text/csv", "x-lakefs-meta-color": "r\xe9d"}
    where = f"{OBJECTS}?path=raw%2Fa+b&storageClass=STANDARD"
    if "chunks" in way:
        answer = await rest.ask("POST", where, pieces=pieces_of(sent), headers=headers)
    else:
        answer = await rest.ask("POST", where, sent, headers=headers)
    etag = hashlib.md5(body).hexdigest()
    assert answer.status == 201, answer.body
    assert answer.json == {
        "path": "raw/a b",
        "path_type": "object",
        "physical_address": answer.json["physical_address"],
        "checksum": etag,
        "size_bytes": len(body),
        "mtime": rest.service.clock.now_us() // 1_000_000,
        "metadata": {"color": "r\xe9d"},
        "content_type": "text/csv",
    }
    stat = await rest.ask("GET", f"{REFS}/stat?path=raw%2Fa+b")
    assert stat.json == answer.json
    found = await rest.ask("GET", f"{REFS}?path=raw%2Fa+b")
    assert (found.status, found.body) == (200, body)
    assert found.headers["etag"] == f'"{etag}"'
    assert found.headers["content-length"] == str(len(body))
    assert found.headers["content-type"] == "text/csv"
    assert len(await blocks_of(rest)) == 1
    received = rest.meters.counter("api.received")
    assert received.value == len(sent)


async def test_an_object_is_no_page_of_this_origin(rest: Rest) -> None:
    await put(rest, "evil", b"<script>", content_type="text/html")
    found = await rest.ask("GET", f"{REFS}?path=evil")
    assert (
        found.headers["content-security-policy"]
        == "default-src 'none'; sandbox; frame-ancestors 'none'"
    )
    assert found.headers["content-disposition"] == "attachment"
    assert found.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("headers", "status", "body", "content_range"),
    [
        ({"range": "bytes=2-9"}, 206, LARGE[2:10], f"bytes 2-9/{len(LARGE)}"),
        ({"range": "bytes=-70000"}, 206, LARGE[-70000:], f"bytes 3002000-3071999/{len(LARGE)}"),
        ({"range": "bytes=99999999-"}, 416, None, f"bytes */{len(LARGE)}"),
        ({"range": "lines=1-2"}, 200, LARGE, ""),
        ({"if-none-match": "ETAG"}, 304, b"", ""),
        ({"if-none-match": '"x"'}, 200, LARGE, ""),
        ({"if-match": "ETAG", "range": "bytes=0-0"}, 206, LARGE[:1], f"bytes 0-0/{len(LARGE)}"),
        ({"if-match": '"x"'}, 412, None, ""),
    ],
)
async def test_ranges_and_conditions(
    rest: Rest, headers: dict[str, str], status: int, body: bytes | None, content_range: str
) -> None:
    made = await put(rest, "a", LARGE)
    etag = f'"{made["checksum"]}"'
    sent = {name: value.replace("ETAG", etag) for name, value in headers.items()}
    found = await rest.ask("GET", f"{REFS}?path=a", headers=sent)
    assert (found.status, found.headers.get("content-range", "")) == (status, content_range)
    if body is None:
        assert found.message
    else:
        assert found.body == body
    head = await rest.ask("HEAD", f"{REFS}?path=a", headers=sent)
    assert head.status == status
    if body is not None:
        told = ("etag", "content-range", "content-length", "content-type")
        assert [head.headers.get(name) for name in told] == [
            found.headers.get(name) for name in told
        ]


async def test_what_is_not_there_and_what_may_not_be_read(rest: Rest) -> None:
    assert (await rest.ask("GET", f"{REFS}?path=a")).status == 404
    assert (await rest.ask("GET", REFS)).status == 400
    await put(rest, "a", LARGE)
    (path,) = await blocks_of(rest)
    namespace = (await rest.ask("GET", "/repositories/lake")).json["storage_namespace"]
    await rest.service.replicas.blocks.delete_many(namespace, [path])
    lost = await rest.ask("GET", f"{REFS}?path=a")
    assert lost.status == 500
    assert "log" in lost.message


async def test_a_read_that_fails_half_way_does_not_end_as_a_whole_one(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(rest, "a", LARGE)

    async def broken(*_: object) -> AsyncIterator[bytes]:
        yield LARGE[:1000]
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store is gone")

    monkeypatch.setattr(rest.service.replicas.blocks, "stream", broken)
    found = await rest.ask("GET", f"{REFS}?path=a")
    assert (found.status, found.body) == (200, LARGE[:1000])
    assert found.is_whole is False


async def test_nothing_more_is_read_for_a_client_that_has_gone(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(rest, "a", LARGE)
    read = []

    async def counted(_: BlockKey, start: int, length: int) -> AsyncIterator[bytes]:
        for at in range(start, start + length, 1000):
            read.append(at)
            await asyncio.sleep(0)
            yield LARGE[at : at + 1000]

    monkeypatch.setattr(rest.service.replicas.blocks, "stream", counted)
    found = await rest.ask("GET", f"{REFS}?path=a", departs=True)
    assert found.is_whole is False
    assert len(read) < 5


@pytest.mark.parametrize(
    ("headers", "status", "part"),
    [
        ({"if-none-match": "*"}, 412, "a"),
        ({"if-match": "x"}, 412, "a"),
        ({"if-match": "OWN"}, 201, ""),
        ({"if-match": '"OWN"'}, 201, ""),
        ({"if-none-match": '"x"'}, 400, "If-None-Match"),
        ({"if-match": '"x", "y"'}, 400, "If-Match"),
        ({"if-match": "identity:00"}, 400, "If-Match"),
        ({"if-match": "x", "if-none-match": "*"}, 400, "If-None-Match"),
    ],
)
@pytest.mark.parametrize("body", [b"new", LARGE])
async def test_conditions_of_writes(
    rest: Rest, headers: dict[str, str], status: int, part: str, body: bytes
) -> None:
    made = await put(rest, "a", b"old")
    sent = {name: value.replace("OWN", made["checksum"]) for name, value in headers.items()}
    answer = await rest.ask("POST", f"{OBJECTS}?path=a", body, headers=sent)
    assert answer.status == status
    if status == 201:
        return
    assert part in answer.message
    assert (await rest.ask("GET", f"{REFS}?path=a")).body == b"old"
    assert len(await blocks_of(rest)) == 1
    # The record of the refusal.
    assert rest.audit.records[-1].operation == "api:uploadObject"
    assert rest.audit.records[-1].outcome is Outcome.FAILED


async def test_an_if_match_of_nothing_fails(rest: Rest) -> None:
    sent = {"if-match": "x"}
    assert (await rest.ask("POST", f"{OBJECTS}?path=a", b"1", headers=sent)).status == 412


async def test_a_body_that_is_not_the_announced_one_is_not_stored(rest: Rest) -> None:
    right = base64.b64encode(hashlib.md5(b"abc").digest()).decode()
    for body, headers, part in (
        (b"abd", {"content-md5": right}, "MD5"),
        (b"abc", {"content-md5": "x"}, "Content-MD5"),
        (b"abc", {"content-length": "4"}, "announced"),
        (b"abc", {"content-type": "a\x01b"}, "ontent"),
        (b"abc", {"x-lakefs-meta-a": "x" * 3000}, "etadata"),
        (form(b"abc", "other"), {"content-type": FORM}, "content"),
        (form(b"abc")[:-9], {"content-type": FORM}, "form"),
        (b"abc", {"content-type": "multipart/form-data"}, "boundary"),
    ):
        answer = await rest.ask("POST", f"{OBJECTS}?path=a", body, headers=headers)
        assert answer.status == 400, headers
        assert part in answer.message
    assert await blocks_of(rest) == []
    await put(rest, "a", b"abc", content_md5=right)


async def test_a_body_is_bounded(tmp_path: Path) -> None:
    async with running_rest(tmp_path, bodies=BodyBounds(bytes_max=100_000)) as rest:
        await put(rest, "a", bytes(100_000))
        for sent in ({"body": bytes(100_001)}, {"pieces": pieces_of(bytes(100_001))}):
            answer = await rest.ask("POST", f"{OBJECTS}?path=b", **sent)
            assert answer.status == 413
            assert "100000" in answer.message
        assert len(await blocks_of(rest)) == 1


async def test_a_body_that_stalls_is_given_up(tmp_path: Path) -> None:
    async with running_rest(tmp_path, bodies=BodyBounds(stall_s=0.01)) as rest:
        answer = await rest.ask("POST", f"{OBJECTS}?path=a", pieces=[LARGE, b""], stalls=True)
        assert answer.status == 408
        assert await blocks_of(rest) == []
        gone = await rest.ask(
            "POST", f"{OBJECTS}?path=a", pieces=[LARGE, b""], stalls=True, departs=True
        )
        assert gone.status == 400
        assert await blocks_of(rest) == []


async def test_not_one_byte_is_taken_of_whoever_may_not_write(rest: Rest) -> None:
    ann = await user(rest, "ann", "Analyst")
    unread = [b"1", b"2"]
    for where in (
        ("POST", f"{OBJECTS}?path=a"),
        ("GET", f"{OBJECTS.removesuffix('objects')}objects/stage_allowed?path=a"),
        ("POST", f"{OBJECTS}/copy?dest_path=a"),
    ):
        answer = await rest.ask(*where, body={"src_path": "x"}, caller=ann)
        assert answer.status == 403, where
        record = rest.audit.records[-1]
        assert (record.outcome, record.principal) == (Outcome.DENIED, "ann")
    answer = await rest.ask("POST", f"{OBJECTS}?path=a", pieces=unread, caller=ann)
    assert answer.status == 403
    assert answer.unread == 2
    assert await blocks_of(rest) == []


async def test_a_preflight_says_whether_a_write_could_be(rest: Rest) -> None:
    allowed = "/repositories/lake/branches/{}/objects/stage_allowed?path=a"
    assert (await rest.ask("GET", allowed.format("main"))).status == 204
    assert (await rest.ask("GET", allowed.format("nowhere"))).status == 404
    assert (await rest.ask("GET", allowed.format("main~1"))).status == 400


async def test_writes_need_a_branch(rest: Rest) -> None:
    for branch, status in (("nowhere", 404), ("main~1", 400), ("a/b", 404)):
        where = f"/repositories/lake/branches/{branch}/objects?path=a"
        assert (await rest.ask("POST", where, LARGE)).status == status
    assert (await rest.ask("POST", f"{OBJECTS}?path=", b"1")).status == 400
    assert await blocks_of(rest) == []


async def test_a_copy_shares_the_block_and_another_refs_object_is_found(rest: Rest) -> None:
    made = await put(rest, "a", LARGE, content_type="text/csv", x_lakefs_meta_k="v")
    commits = "/repositories/lake/branches/main/commits"
    head = (await rest.ask("POST", commits, {"message": "m"})).json["id"]
    copied = await rest.ask("POST", f"{OBJECTS}/copy?dest_path=b", {"src_path": "a"})
    assert copied.status == 201
    assert copied.json == {**made, "path": "b", "mtime": copied.json["mtime"]}
    await rest.ask("DELETE", f"{OBJECTS}?path=a")
    again = {"src_path": "a", "src_ref": head}
    assert (await rest.ask("POST", f"{OBJECTS}/copy?dest_path=c", again)).status == 201
    assert (await rest.ask("GET", f"{REFS}?path=c")).body == LARGE
    missing = await rest.ask("POST", f"{OBJECTS}/copy?dest_path=d", {"src_path": "a"})
    assert missing.status == 404


async def test_user_metadata_are_replaced(rest: Rest) -> None:
    made = await put(rest, "a", b"1", content_type="text/csv", x_lakefs_meta_old="1")
    where = f"{OBJECTS}/stat/user_metadata?path="
    changed = await rest.ask("PUT", f"{where}a", {"set": {"New": "2"}})
    assert (changed.status, changed.body) == (204, b"")
    stat = (await rest.ask("GET", f"{REFS}/stat?path=a")).json
    assert stat == {**made, "metadata": {"new": "2"}}
    assert (await rest.ask("PUT", f"{where}b", {"set": {}})).status == 404
    assert (await rest.ask("PUT", f"{where}a", {"set": {"a b": "2"}})).status == 400
    ann = await user(rest, "ann", "Analyst")
    assert (await rest.ask("PUT", f"{where}a", {"set": {}}, caller=ann)).status == 403


async def test_lakectls_own_metadata_have_names_that_headers_can_have(rest: Rest) -> None:
    made = await put(rest, "a", b"1", x_lakefs_internal_client_mtime="17")
    assert made["metadata"] == {"::lakefs::client-mtime": "17"}
    where = f"{OBJECTS}/stat/user_metadata?path=a"
    changed = await rest.ask("PUT", where, {"set": {"::lakefs::client-mtime": "18"}})
    assert changed.status == 204
    lake, ref = rest.service.graveler, ("lake", "main", "a")
    entry = unpack((await lake.lookup(rest.service.admin, *ref)).entry)
    assert entry.metadata == (("x-lakefs-internal-client-mtime", "18"),)
    shown = (await rest.ask("GET", f"{REFS}/stat?path=a")).json["metadata"]
    assert shown == {"::lakefs::client-mtime": "18"}


async def test_underlying_properties(rest: Rest) -> None:
    await put(rest, "a", b"1")
    found = await rest.ask("GET", f"{REFS}/underlyingProperties?path=a")
    assert (found.status, found.json) == (200, {})
    assert (await rest.ask("GET", f"{REFS}/underlyingProperties?path=b")).status == 404


async def test_transfers_have_places_of_their_own_and_no_user_has_them_all(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_rest(tmp_path, requests_max=4) as rest:
        await put(rest, "a", LARGE)
        seen: list[int] = []

        stream = rest.service.replicas.blocks.stream
        others = await user(rest, "bob", "Analyst")

        async def nested(key: BlockKey, start: int, length: int) -> AsyncIterator[bytes]:
            if len(seen) < 2:
                seen.append(0)
                seen[len(seen) - 1] = (await rest.ask("GET", f"{REFS}?path=a")).status
                if len(seen) == 2 and 503 in seen:
                    # The user has half of the places: others, and other requests, are served.
                    seen.append((await rest.ask("GET", f"{REFS}/stat?path=a")).status)
                    seen.append((await rest.ask("GET", f"{REFS}?path=a", caller=others)).status)
            async for chunk in stream(key, start, length):
                yield chunk

        monkeypatch.setattr(rest.service.replicas.blocks, "stream", nested)
        assert (await rest.ask("GET", f"{REFS}?path=a")).status == 200
        assert 503 in seen
        assert seen[2:] == [200, 200]
        monkeypatch.setattr(rest.service.replicas.blocks, "stream", stream)
        assert (await rest.ask("GET", f"{REFS}?path=a")).status == 200


async def test_reads_are_audited_if_the_log_wants_them(rest: Rest) -> None:
    await put(rest, "a", b"1")
    count = len(rest.audit.records)
    await rest.ask("GET", f"{REFS}?path=a")
    assert len(rest.audit.records) == count
    rest.audit.reads = True
    await rest.ask("GET", f"{REFS}?path=a")
    record = rest.audit.records[-1]
    assert (record.operation, record.resource) == (
        "api:getObject",
        "repository/lake/ref/main/object/a",
    )


async def test_a_body_that_trickles_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarn_api.bodies._WINDOW_S", 0.0)
    async with running_rest(tmp_path, bodies=BodyBounds(rate_min_bytes=10**15)) as rest:
        answer = await rest.ask("POST", f"{OBJECTS}?path=a", pieces=pieces_of(LARGE))
        assert (answer.status, "bytes/s" in answer.message) == (408, True)
        assert await blocks_of(rest) == []


async def test_an_answer_that_nobody_takes_holds_little_and_ends(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(rest, "a", LARGE)
    most, read = 1000, 0

    async def endless(*_at: object) -> AsyncIterator[bytes]:
        nonlocal read
        for _chunk in range(most):
            read += 1
            yield bytes(CHUNK_BYTES)

    blocks, size = rest.service.replicas.blocks, most * CHUNK_BYTES
    monkeypatch.setattr(blocks, "stream", endless)
    # An object of 1,000 MiB that is in no memory.
    monkeypatch.setattr(
        "tarn_api.operations.reading.answer_to", lambda *_: ReadAnswer(200, 0, size, size)
    )
    bounds = HttpBounds(write_stall_timeout_s=0.2)
    async with HttpServer(rest.endpoint, bounds) as server, asyncio.timeout(30):
        port = await server.listen("127.0.0.1", 0, tls=None, reuse_port=False)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        head = f"GET /api/v1{REFS}?path=a HTTP/1.1\r\nauthorization: {rest.admin}\r\n\r\n"
        writer.write(head.encode())
        await reader.readuntil(b"\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        while server.state.tasks:  # noqa: ASYNC110 - uvicorn tells nobody
            await asyncio.sleep(0.01)
        writer.close()
    assert read < 50  # what the sockets hold
    assert not rest.endpoint._transfers


async def test_bodies_go_through_real_connections(rest: Rest) -> None:
    """One connection, one object after the other; a refused body is not asked for (100-continue)."""
    ann = await user(rest, "ann", "Analyst")
    async with HttpServer(rest.endpoint, HttpBounds()) as server, asyncio.timeout(30):
        port = await server.listen("127.0.0.1", 0, tls=None, reuse_port=False)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def ask(method: str, where: str, body: bytes = b"", *, caller: str = "") -> int:
            lines = [
                f"{method} /api/v1{where} HTTP/1.1",
                f"authorization: {caller or rest.admin}",
                f"content-length: {len(body)}",
                *(["expect: 100-continue"] if body else []),
            ]
            writer.write("\r\n".join([*lines, "\r\n"]).encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"HTTP/1.1 100"):
                writer.write(body)
                head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            got.append(await reader.readexactly(length))
            return int(head.split()[1])

        got: list[bytes] = []
        assert await ask("POST", f"{OBJECTS}?path=a", LARGE) == 201
        assert await ask("GET", f"{REFS}?path=a") == 200
        assert got[-1] == LARGE
        assert await ask("POST", f"{OBJECTS}?path=b", LARGE, caller=ann) == 403
        writer.close()
    assert len(await blocks_of(rest)) == 1

"""Objects that clients write to the bucket themselves, as lakectl, the wrapper and hadoop-lakefs do."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from rest_service import Answer, Rest, basic, running_rest
from s3_stores import opened
from tests.support.servers.s3_server import S3Server

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.rpc.process.system import SystemClock

MAIN = "/repositories/lake/branches/main"
REFS = "/repositories/lake/refs/main/objects"
BODY = b"written by the client"
ETAG = hashlib.md5(BODY).hexdigest()
MIN_PART = 5 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@asynccontextmanager
async def over_a_bucket(
    server: S3Server, tmp_path: Path, *, presigned_links: bool = True
) -> AsyncIterator[Rest]:
    root = f"s3://tarn/{tmp_path.name}"
    async with (
        opened(server, root) as store,
        running_rest(
            tmp_path,
            store=lambda _: cast("MemBlockStore", store),
            namespace_prefix=f"{root}/",
            presigned_links=presigned_links,
        ) as running,
    ):
        # URLs are signed with the time of the machine.
        running.service.clock.advance(
            SystemClock().now_us() / 1_000_000 - running.service.clock.now_us() / 1_000_000
        )
        yield await relogged(running)


@pytest.fixture
async def rest(server: S3Server, tmp_path: Path) -> AsyncIterator[Rest]:
    async with over_a_bucket(server, tmp_path) as rest:
        yield rest


async def relogged(rest: Rest) -> Rest:
    """Days have passed for the token of the administrator."""
    service = await rest.service.logged_in()
    object.__setattr__(rest, "service", service)
    return rest


async def sent(url: str, body: bytes | None = None) -> tuple[bytes, str]:
    """Does what a client does with a URL; returns body and ETag of the answer."""

    def ask() -> tuple[bytes, str]:
        request = Request(url, body, method="GET" if body is None else "PUT")
        with urlopen(request, timeout=30) as answer:
            return answer.read(), (answer.headers["ETag"] or "").strip('"')

    return await asyncio.to_thread(ask)


async def issued(rest: Rest, path: str = "a") -> dict[str, Any]:
    answer = await rest.ask("GET", f"{MAIN}/staging/backing?path={path}&presign=true")
    assert answer.status == 200, answer.body
    place: dict[str, Any] = answer.json
    return place


async def linked(
    rest: Rest,
    place: object,
    path: str = "a",
    *,
    size: int = len(BODY),
    caller: str = "",
    headers: dict[str, str] | None = None,
    **more: object,
) -> Answer:
    body = {"staging": place, "checksum": f'"{ETAG}"', "size_bytes": size, **more}
    where = f"{MAIN}/staging/backing?path={path}"
    return await rest.ask("PUT", where, body, caller=caller, headers=headers)


async def test_the_configuration_says_that_there_are_links(rest: Rest) -> None:
    storage = (await rest.ask("GET", "/config")).json["storage_config"]
    assert storage["blockstore_type"] == "s3"
    assert storage["pre_sign_support"] is True
    assert storage["pre_sign_multipart_upload"] is True


async def test_an_object_is_written_to_the_bucket_and_linked(rest: Rest) -> None:
    place = await issued(rest)
    assert str(place["physical_address"]).startswith("s3://tarn/")
    assert place["presigned_url_expiry"] == rest.service.clock.now_us() // 1_000_000 + 900
    nothing = await linked(rest, place)
    assert (nothing.status, "nothing was written" in nothing.message) == (400, True)
    assert (await sent(str(place["presigned_url"]), BODY))[1] == ETAG
    wrong = await linked(rest, place, size=5)
    assert wrong.status == 400
    about: Any = {"content_type": "text/csv", "user_metadata": {"Color": "red"}}
    made = await linked(rest, place, **about)
    assert made.status == 200, made.body
    assert (made.json["checksum"], made.json["size_bytes"]) == (ETAG, len(BODY))
    assert (made.json["content_type"], made.json["metadata"]) == ("text/csv", {"color": "red"})
    assert (await rest.ask("GET", f"{REFS}?path=a")).body == BODY
    stat = (await rest.ask("GET", f"{REFS}/stat?path=a")).json
    assert stat == made.json
    # Once: the same request gets the same answer, and no other one is taken.
    assert (await linked(rest, place, **about)).json == made.json
    assert (await linked(rest, place, size=5)).status == 400
    assert (await linked(rest, place, "b")).status == 400


async def test_the_holder_of_a_url_changes_no_linked_object(rest: Rest) -> None:
    """The URL takes another PUT until it ends, which then leads to bytes that nothing names."""
    place = await issued(rest)
    url = str(place["presigned_url"])
    await sent(url, BODY)
    assert (await linked(rest, place)).status == 200
    await sent(url, b"overwritten by its hold")
    assert (await rest.ask("GET", f"{REFS}?path=a")).body == BODY
    assert (await linked(rest, place)).status == 200  # the first answer
    assert (await rest.ask("GET", f"{REFS}?path=a")).body == BODY


async def test_no_other_address_is_staged(rest: Rest) -> None:
    """Of another bucket, invented, of another object, with another token, or of another caller."""
    place = await issued(rest)
    await sent(str(place["presigned_url"]), BODY)
    address = str(place["physical_address"])
    await rest.ask("POST", f"{MAIN}/objects?path=b", BODY)
    written = (await rest.ask("GET", f"{REFS}/stat?path=b")).json["physical_address"]
    for other in (
        "",
        "s3://of-others/secret",
        f"{address}x",
        f"{address}?link=x",
        f"{address}/../x",
        f"{address[:-2]}{'00' if address[-2:] != '00' else '11'}",
        written,
        "s3://tarn/data/2026010100/00",
    ):
        for refused in (
            await linked(rest, {"physical_address": other}),
            await rest.ask(
                "PUT",
                f"{MAIN}/objects?path=a",
                {"physical_address": other, "checksum": ETAG, "size_bytes": len(BODY)},
            ),
        ):
            assert refused.status == 400, other
            assert refused.message
    assert (await linked(rest, {})).status == 400
    service = rest.service
    await service.auth.create_user(service.admin, "eve", ["Developer"])
    key = await service.auth.create_credential(service.admin, user_id="eve")
    eve = basic(key.credential.access_key_id, key.secret_access_key)
    assert (await linked(rest, place, caller=eve)).status == 400
    assert (await rest.ask("GET", f"{REFS}?path=a")).status == 404
    # By stageObject, as clients before linkPhysicalAddress did.
    staged = await rest.ask(
        "PUT",
        f"{MAIN}/objects?path=a",
        {"physical_address": address, "checksum": ETAG, "size_bytes": len(BODY)},
    )
    assert staged.status == 201, staged.body


async def test_a_linked_object_has_the_time_that_its_client_names(rest: Rest) -> None:
    place = await issued(rest)
    await sent(str(place["presigned_url"]), BODY)
    for wrong in (-1, 253_402_300_800, 2**62, 1.5, "1"):
        assert (await linked(rest, place, mtime=wrong)).status == 400, wrong
    assert (await linked(rest, place, mtime=1_700_000_000)).json["mtime"] == 1_700_000_000
    assert (await rest.ask("GET", f"{REFS}/stat?path=a")).json["mtime"] == 1_700_000_000
    place = await issued(rest)
    await sent(str(place["presigned_url"]), BODY)
    body = {
        "physical_address": place["physical_address"],
        "checksum": ETAG,
        "size_bytes": len(BODY),
        "mtime": 0,
    }
    staged = await rest.ask("PUT", f"{MAIN}/objects?path=a", body)
    assert (staged.status, staged.json["mtime"]) == (201, 0)


async def test_an_address_is_the_place_of_the_block(rest: Rest) -> None:
    """hadoop-lakefs (access mode simple) writes to it by S3A, with keys of its own, and asks for no URL."""
    answer = await rest.ask("GET", f"{MAIN}/staging/backing?path=a")
    place = answer.json
    assert (answer.status, place.get("presigned_url")) == (200, None)
    assert (await linked(rest, place)).status == 400, "nothing is written yet"
    blocks = rest.service.replicas.blocks
    namespace, hour, name = str(place["physical_address"]).rsplit("/", 2)
    await blocks.put(BlockKey(namespace.removesuffix("/data"), f"data/{hour}/{name}"), BODY)
    made = await linked(rest, place)
    assert made.status == 200, made.body
    assert made.json["physical_address"] == place["physical_address"]
    assert (await rest.ask("GET", f"{REFS}?path=a")).body == BODY


async def test_a_link_keeps_its_condition(rest: Rest) -> None:
    await rest.ask("POST", f"{MAIN}/objects?path=a", b"first")
    place = await issued(rest)
    await sent(str(place["presigned_url"]), BODY)
    refused = await linked(rest, place, headers={"if-none-match": "*"})
    assert refused.status == 412
    assert (await rest.ask("GET", f"{REFS}?path=a")).body == b"first"


async def test_readers_get_links_and_others_none(rest: Rest) -> None:
    await rest.ask("POST", f"{MAIN}/objects?path=a", BODY, headers={"content-type": "text/html"})
    found = await rest.ask("GET", f"{REFS}?path=a&presign=true")
    assert found.status == 302
    assert (await sent(found.headers["location"]))[0] == BODY
    assert "attachment" in found.headers["location"]
    same = {"if-none-match": f'"{ETAG}"'}
    assert (await rest.ask("GET", f"{REFS}?path=a&presign=true", headers=same)).status == 304
    assert (await rest.ask("GET", f"{REFS}?path=b&presign=true")).status == 404
    stat = (await rest.ask("GET", f"{REFS}/stat?path=a&presign=true")).json
    listed = (await rest.ask("GET", f"{REFS}/ls?presign=true")).json["results"]
    for each in (stat, *listed):
        assert (await sent(each["physical_address"]))[0] == BODY
        assert each["physical_address_expiry"] == rest.service.clock.now_us() // 1_000_000 + 900
    plain = (await rest.ask("GET", f"{REFS}/ls")).json["results"]
    assert plain[0]["physical_address"].startswith("s3://")
    assert "physical_address_expiry" not in plain[0]


async def begun(rest: Rest, path: str = "large", count: int = 1) -> dict[str, Any]:
    where = f"{MAIN}/staging/pmpu?path={path}&parts={count}"
    answer = await rest.ask("POST", where)
    assert answer.status == 201, answer.body
    upload: dict[str, Any] = answer.json
    return upload


def place_of(upload: dict[str, Any], path: str = "large", rest: str = "") -> str:
    return f"{MAIN}/staging/pmpu/{quote(str(upload['upload_id']), safe='')}{rest}?path={path}"


async def test_parts_are_written_to_the_bucket_and_completed(rest: Rest) -> None:
    upload = await begun(rest)
    address = {"physical_address": upload["physical_address"]}
    (first,) = upload["presigned_urls"]
    where = place_of(upload, rest="/parts/2")
    more = await rest.ask("PUT", where, address)
    assert more.status == 200, more.body
    bodies = [bytes(MIN_PART), BODY]
    parts = []
    for number, url in enumerate((first, more.json["presigned_url"]), 1):
        _, etag = await sent(str(url), bodies[number - 1])
        parts.append({"part_number": number, "etag": f'"{etag}"'})
    assert (
        await rest.ask("PUT", place_of(upload, "other"), {**address, "parts": parts})
    ).status >= 400
    done = {**address, "parts": parts[::-1], "content_type": "a/b", "user_metadata": {"k": "v"}}
    for _ in range(2):  # an answer may be lost
        made = await rest.ask("PUT", place_of(upload), done)
        assert made.status == 200, made.body
        assert made.json["size_bytes"] == MIN_PART + len(BODY)
        assert made.json["checksum"].endswith("-2")
        assert (made.json["content_type"], made.json["metadata"]) == ("a/b", {"k": "v"})
    assert (await rest.ask("GET", f"{REFS}?path=large")).body == b"".join(bodies)


async def test_an_upload_may_have_as_many_parts_as_a_bucket_takes(rest: Rest) -> None:
    """lakectl asks for all URLs at once, of parts of 5 MiB; more than 1,000 are not asked of graveler."""
    upload = await begun(rest, count=1002)
    urls = upload["presigned_urls"]
    numbers = [f"partNumber={number}&" in f"{url}&" for number, url in enumerate(urls, 1)]
    assert (len(urls), all(numbers)) == (1002, True)
    assert (await sent(str(urls[-1]), BODY))[1] == ETAG
    address = {"physical_address": upload["physical_address"]}
    parts = [{"part_number": number, "etag": f'"{ETAG}"'} for number in range(1, 10_001)]
    refused = await rest.ask("PUT", place_of(upload), {**address, "parts": parts})
    assert refused.status == 400, "the body is taken, and parts are missing"


async def test_parts_of_other_etags_are_not_completed(rest: Rest) -> None:
    upload = await begun(rest)
    address = {"physical_address": upload["physical_address"]}
    await sent(str(upload["presigned_urls"][0]), BODY)
    for parts in ([{"part_number": 1, "etag": "0" * 32}], []):
        assert (await rest.ask("PUT", place_of(upload), {**address, "parts": parts})).status == 400
    assert (await rest.ask("PUT", place_of(upload))).status == 400
    assert (await rest.ask("GET", f"{REFS}?path=large")).status == 404


def copy_of(upload: dict[str, Any], path: str, span: str = "") -> dict[str, Any]:
    source = {"repository": "lake", "ref": "main", "path": path}
    if span:
        source["range"] = span
    return {"physical_address": upload["physical_address"], "copy_source": source}


async def copied_part(rest: Rest, upload: dict[str, Any], number: int, body: object) -> Answer:
    where = place_of(upload, rest=f"/parts/{number}/copy")
    return await rest.ask("PUT", where, body)


async def test_parts_are_copied_inside_the_bucket(rest: Rest) -> None:
    large = bytes(range(256)) * ((MIN_PART >> 8) + 1)
    assert (await rest.ask("POST", f"{MAIN}/objects?path=source", large)).status == 201
    upload = await begun(rest)
    parts = []
    for number, span in ((1, ""), (2, f"bytes=0-{len(large) - 1}"), (3, "bytes=3-9")):
        made = await copied_part(rest, upload, number, copy_of(upload, "source", span))
        assert (made.status, made.body) == (204, b"")
        parts.append({"part_number": number, "etag": made.headers["etag"]})
    done = {"physical_address": upload["physical_address"], "parts": parts}
    made = await rest.ask("PUT", place_of(upload), done)
    assert (made.status, made.json["size_bytes"]) == (200, 2 * len(large) + 7)
    assert (await rest.ask("GET", f"{REFS}?path=large")).body == large + large + large[3:10]
    late = await copied_part(rest, upload, 5, copy_of(upload, "source"))
    assert (late.status, "no such upload" in late.message) == (404, True)


async def test_what_a_bucket_does_not_copy_is_refused_before_it_is_asked(rest: Rest) -> None:
    await rest.ask("POST", f"{MAIN}/objects?path=small", BODY)
    upload = await begun(rest)
    for span in ("bytes=0-1", "bytes=0-99", "bytes=2-1", "bytes=-2", "bytes=0-1,3-4", "bytes=1-"):
        refused = await copied_part(rest, upload, 1, copy_of(upload, "small", span))
        assert (refused.status, bool(refused.message)) == (400, True), span
    for more, status in (
        ({"path": "nothing"}, 404),
        ({"ref": "nowhere"}, 404),
        ({"repository": "nowhere"}, 404),
    ):
        body = copy_of(upload, "small")
        body["copy_source"] |= more
        assert (await copied_part(rest, upload, 1, body)).status == status, more
    assert (await copied_part(rest, upload, 0, copy_of(upload, "small"))).status == 400
    foreign = copy_of(upload, "small") | {"physical_address": "s3://tarn/x"}
    assert (await copied_part(rest, upload, 1, foreign)).status == 400
    rest.service.clock.advance(3600)
    late = await copied_part(rest, upload, 1, copy_of(upload, "small"))
    assert (late.status, "hour" in late.message) == (400, True)


async def test_a_range_takes_no_time_that_its_sender_chooses(rest: Rest) -> None:
    """The pattern of the document takes exponential time for this one: the handler checks the form."""
    upload = await begun(rest)
    await rest.ask("POST", f"{MAIN}/objects?path=small", BODY)
    span = f"bytes={'-11' * 64}x"
    assert (await copied_part(rest, upload, 1, copy_of(upload, "small", span))).status == 400


async def test_an_aborted_upload_is_not_completed(rest: Rest) -> None:
    upload = await begun(rest)
    address = {"physical_address": upload["physical_address"]}
    _, etag = await sent(str(upload["presigned_urls"][0]), BODY)
    assert (await rest.ask("DELETE", place_of(upload))).status == 400
    assert (await rest.ask("DELETE", place_of(upload), address)).status == 204
    done = {**address, "parts": [{"part_number": 1, "etag": etag}]}
    assert (await rest.ask("PUT", place_of(upload), done)).status == 404
    assert (await rest.ask("GET", f"{REFS}?path=large")).status == 404


async def test_uploads_are_only_for_whoever_may_write(rest: Rest) -> None:
    service = rest.service
    upload = await begun(rest)
    await service.auth.create_user(service.admin, "ann", ["Analyst"])
    key = await service.auth.create_credential(service.admin, user_id="ann")
    ann = basic(key.credential.access_key_id, key.secret_access_key)
    address = {"physical_address": upload["physical_address"]}
    done = {**address, "parts": []}
    for method, where, body in (
        ("GET", f"{MAIN}/staging/backing?path=a&presign=true", None),
        ("POST", f"{MAIN}/staging/pmpu?path=a", None),
        ("PUT", place_of(upload, rest="/parts/2"), address),
        ("PUT", place_of(upload, rest="/parts/2/copy"), copy_of(upload, "a")),
        ("PUT", place_of(upload), done),
        ("DELETE", place_of(upload), address),
        ("POST", f"{MAIN}/objects?path=a", {"x": 1}),
    ):
        answer = await rest.ask(method, where, body, caller=ann)
        assert answer.status == 403, where
    foreign = {"physical_address": str(upload["physical_address"]).replace("/lake", "/sea")}
    assert (await rest.ask("DELETE", place_of(upload), foreign)).status == 400
    nowhere = place_of(upload).replace("/lake/", "/nowhere/")
    assert (await rest.ask("DELETE", nowhere, {"physical_address": "x"})).status == 404
    assert "presigned_urls" not in await begun(rest, count=0)
    for count, status in ((-1, 400), (10_001, 400), (0, 201)):
        where = f"{MAIN}/staging/pmpu?path=a&parts={count}"
        assert (await rest.ask("POST", where)).status == status


async def test_the_links_of_an_upload_end_with_its_address(rest: Rest) -> None:
    upload = await begun(rest)
    rest.service.clock.advance(3600)
    address = {"physical_address": upload["physical_address"]}
    late = await rest.ask("PUT", place_of(upload, rest="/parts/2"), address)
    assert (late.status, "hour" in late.message) == (400, True)


async def test_without_links_all_bytes_pass_the_endpoint(server: S3Server, tmp_path: Path) -> None:
    """Addresses without URLs stay: whoever has keys of the bucket writes by them."""
    async with over_a_bucket(server, tmp_path, presigned_links=False) as rest:
        storage = (await rest.ask("GET", "/config")).json["storage_config"]
        assert storage["blockstore_type"] == "s3"
        assert storage["pre_sign_support"] is storage["pre_sign_multipart_upload"] is False
        await rest.ask("POST", f"{MAIN}/objects?path=a", BODY)
        for method, where, body in (
            ("GET", f"{MAIN}/staging/backing?path=a&presign=true", None),
            ("POST", f"{MAIN}/staging/pmpu?path=a", None),
            ("PUT", f"{MAIN}/staging/pmpu/u/parts/1?path=a", {"physical_address": "s3://a/b"}),
            ("GET", f"{REFS}/stat?path=a&presign=true", None),
            ("GET", f"{REFS}/ls?presign=true", None),
        ):
            refused = await rest.ask(method, where, body)
            told = (refused.status, "presigned links" in refused.message)
            assert told == (501, True), where
        assert (await rest.ask("GET", f"{REFS}?path=a&presign=true")).body == BODY
        place = await rest.ask("GET", f"{MAIN}/staging/backing?path=a")
        assert (place.status, "presigned_url" in place.json) == (200, False)


async def test_a_store_that_is_no_bucket_says_so(tmp_path: Path) -> None:
    async with running_rest(tmp_path) as rest:
        storage = (await rest.ask("GET", "/config")).json["storage_config"]
        assert storage["pre_sign_support"] is False
        assert storage["pre_sign_multipart_upload"] is False
        await rest.ask("POST", f"{MAIN}/objects?path=a", BODY)
        for method, where in (
            ("GET", f"{MAIN}/staging/backing?path=a"),
            ("POST", f"{MAIN}/staging/pmpu?path=a"),
            ("PUT", f"{MAIN}/staging/pmpu/u/parts/1/copy?path=a"),
            ("GET", f"{REFS}/stat?path=a&presign=true"),
            ("GET", f"{REFS}/ls?presign=true"),
        ):
            body = copy_of({"physical_address": "s3://a/b"}, "a") if method == "PUT" else None
            answer = await rest.ask(method, where, body)
            assert (answer.status, bool(answer.message)) == (501, True), where
        assert (await rest.ask("GET", f"{REFS}?path=a&presign=true")).body == BODY

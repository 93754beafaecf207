"""Object tags: written with an object, copied with it, read, replaced and removed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from gateway_lake import GatewayLake

from tarn.core.collection import LIMITS
from tarn.core.entry import pack, with_parts
from tarn.core.errors import Kind, Reason
from tarn.core.object_tags import TAGS_MAX
from tarn.core.part_list import PartList, parts_of
from tarn.objects import copying, rewriting

SMALL = b"hello, lake\n"
OLD = {"x-amz-tagging": "team=ada&zone=eu%20west"}
TAGS = (("team", "ada"), ("zone", "eu west"))
NEW = (("job", "1"), ("team", ""))


def document(*tags: tuple[str, str]) -> bytes:
    items = "".join(f"<Tag><Key>{key}</Key><Value>{value}</Value></Tag>" for key, value in tags)
    return f"<Tagging><TagSet>{items}</TagSet></Tagging>".encode()


async def told(lake: GatewayLake, target: str = "/lake/main/a") -> tuple[tuple[str, str], ...]:
    reply = await lake.ask("GET", target, "tagging")
    assert reply.status == 200
    return tuple(zip(reply.all("Key"), reply.all("Value"), strict=True))


async def tag(
    lake: GatewayLake, *tags: tuple[str, str], target: str = "/lake/main/a", **more: Any
) -> Any:
    return await lake.ask("PUT", target, "tagging", document(*tags), **more)


async def test_tags_that_come_with_an_object_are_told_and_counted(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/plain", body=SMALL)
    await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=OLD)
    assert await told(lake) == TAGS
    assert await told(lake, "/lake/main/plain") == ()
    assert await told(lake, "/lake/main/") == ()
    for method in ("GET", "HEAD"):
        for more in ({}, {"range": "bytes=0-1"}):
            reply = await lake.ask(method, "/lake/main/a", headers=more)
            assert reply.headers["x-amz-tagging-count"] == "2"
            plain = await lake.ask(method, "/lake/main/plain", headers=more)
            assert "x-amz-tagging-count" not in plain.headers


async def test_tags_are_replaced_and_removed_and_the_rest_of_the_object_stays(
    lake: GatewayLake,
) -> None:
    headers = OLD | {"x-amz-meta-job": "1", "content-type": "text/csv"}
    await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=headers)
    before = lake.entry("lake", "main", "a")
    lake.clock.advance(60)
    assert (await tag(lake, ("team", ""), ("job", "1"))).status == 200
    assert await told(lake) == NEW
    after = lake.entry("lake", "main", "a")
    assert replace(after, operation_id="") == replace(before, tags=NEW)
    reply = await lake.ask("DELETE", "/lake/main/a", "tagging")
    assert (reply.status, reply.body) == (204, b"")
    assert await told(lake) == ()
    assert replace(lake.entry("lake", "main", "a"), operation_id="") == replace(before, tags=())
    assert (await tag(lake)).status == 200
    assert len(await lake.blocks_of("lake")) == 1


async def test_tags_that_an_object_has_already_are_not_written_again(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=OLD)
    before = lake.entry("lake", "main", "a")
    assert (await tag(lake, *reversed(TAGS))).status == 200
    assert lake.entry("lake", "main", "a") == before


async def test_an_object_whose_block_is_old_gets_tags_with_a_copy_of_its_bytes(
    lake: GatewayLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection may judge the old block before the entry is staged (rule 11). Here a minute stands for hours."""
    monkeypatch.setattr(copying, "YOUNG", replace(LIMITS, staging_us=60_000_000))
    await lake.ask("PUT", "/lake/main/a", body=SMALL, headers={"x-amz-meta-job": "1"})
    old = lake.entry("lake", "main", "a")
    lake.clock.advance(61)
    assert (await tag(lake, *NEW)).status == 200
    new = lake.entry("lake", "main", "a")
    assert new.address != old.address
    assert replace(new, address=old.address, operation_id="") == replace(old, tags=NEW)
    assert (await lake.ask("GET", "/lake/main/a")).body == SMALL
    assert len(await lake.blocks_of("lake")) == 2
    lake.clock.advance(61)
    monkeypatch.setattr(rewriting, "COPY_BYTES_MAX", len(SMALL) - 1)
    reply = await tag(lake, *TAGS)
    assert (reply.status, reply.code) == (400, "InvalidRequest")
    assert lake.entry("lake", "main", "a") == new


async def test_an_object_that_graveler_does_not_note_gets_tags_with_a_copy_of_its_bytes(
    lake: GatewayLake,
) -> None:
    lake.graveler.is_old_version = True
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    old = lake.entry("lake", "main", "a")
    assert (await tag(lake, *NEW)).status == 200
    assert lake.entry("lake", "main", "a").address != old.address


async def test_a_multipart_object_keeps_its_etag_and_its_parts(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    kept = PartList.of([8, 4]).encode()
    made = replace(lake.entry("lake", "main", "a"), etag_parts=2)
    branch = lake.graveler.repos["lake"].branches["main"]
    branch["a"] = with_parts(pack(made), kept)
    lake.graveler.is_old_version = True
    await tag(lake, *NEW)
    new = lake.entry("lake", "main", "a")
    assert (new.etag, new.parts, new.tags) == (made.etag, kept, NEW)
    assert parts_of(new) is not None
    assert (await lake.ask("GET", "/lake/main/a", "partNumber=2")).body == SMALL[8:]
    branch["a"] = with_parts(pack(made), b"damaged")
    assert (await tag(lake, *NEW)).status == 200
    assert lake.entry("lake", "main", "a").parts == b""


# ---- other writes between the read and the write


class Interrupted:
    """Lets something happen after each of the next lookups of a path."""

    def __init__(self, lake: GatewayLake, monkeypatch: pytest.MonkeyPatch, *steps: Any) -> None:
        self.left = list(steps)
        lookup = lake.client.lookup

        async def slow(*arguments: Any, **named: Any) -> Any:
            found = await lookup(*arguments, **named)
            if self.left:
                await self.left.pop(0)()
            return found

        monkeypatch.setattr(lake.client, "lookup", slow)


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize(
    ("body", "headers"),
    [(b"newer", {}), (SMALL, {"x-amz-meta-job": "newer"}), (SMALL, {"x-amz-tagging": "other=1"})],
)
async def test_a_put_between_the_read_and_the_write_of_tags_is_not_lost(
    lake: GatewayLake,
    monkeypatch: pytest.MonkeyPatch,
    is_old: bool,
    body: bytes,
    headers: dict[str, str],
) -> None:
    """Its ETag may be that of the object that was read."""
    lake.graveler.is_old_version = is_old
    await lake.ask("PUT", "/lake/main/a", body=SMALL)

    async def put() -> None:
        assert (await lake.ask("PUT", "/lake/main/a", body=body, headers=headers)).status == 200

    Interrupted(lake, monkeypatch, put)
    assert (await tag(lake, *NEW)).status == 200
    made = lake.entry("lake", "main", "a")
    assert made.tags == NEW
    assert dict(made.metadata).get("job") == headers.get("x-amz-meta-job")
    assert (await lake.ask("GET", "/lake/main/a")).body == body
    if is_old:  # the blocks of the two versions, and the one of the tags: that of the first attempt is removed
        assert len(await lake.blocks_of("lake")) == 3


async def test_tags_of_an_object_that_others_replace_all_the_time_are_refused(
    lake: GatewayLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    count = 0

    async def put() -> None:
        nonlocal count
        count += 1
        await lake.ask("PUT", "/lake/main/a", body=b"%d" % count)

    Interrupted(lake, monkeypatch, *[put] * 50)
    reply = await tag(lake, *NEW)
    assert (reply.status, reply.code) == (409, "OperationAborted")
    assert lake.entry("lake", "main", "a").tags == ()
    assert 2 < count < 20


async def test_an_object_that_is_deleted_meanwhile_does_not_come_back(
    lake: GatewayLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)

    async def delete() -> None:
        await lake.ask("DELETE", "/lake/main/a")

    Interrupted(lake, monkeypatch, delete)
    reply = await tag(lake, *NEW)
    assert (reply.status, reply.code) == (404, "NoSuchKey")
    assert lake.graveler.repos["lake"].branches["main"] == {}


async def test_two_requests_leave_the_tags_of_one(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(tag(lake, *tags)) for tags in (NEW, TAGS)]
    assert [each.result().status for each in tasks] == [200, 200]
    assert lake.entry("lake", "main", "a").tags in (NEW, TAGS)


async def test_tags_with_an_unknown_outcome_keep_their_block(
    lake: GatewayLake, failure: Any
) -> None:
    lake.graveler.is_old_version = True
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    lake.graveler.fail["stage"] = [failure(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN)]
    assert (await tag(lake, *NEW)).status == 503
    assert len(await lake.blocks_of("lake")) == 2
    lake.graveler.fail["stage"] = [failure(Kind.DENIED, Reason.BRANCH_PROTECTED)]
    assert (await tag(lake, *NEW)).status == 403
    assert len(await lake.blocks_of("lake")) == 2


async def test_a_repository_that_is_recreated_meanwhile_takes_no_tags(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    lake.graveler.repos["lake"].namespace = "local://the-other-life"
    assert (await tag(lake, *NEW)).status == 503
    assert lake.entry("lake", "main", "a").tags == ()


# ---- who, and where


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_only_objects_of_branches_take_tags(lake: GatewayLake, method: str) -> None:
    lake.create("pond", tags=("v1",))
    body = document(*NEW) if method == "PUT" else b""
    for target, status, code in (
        ("/lake/main/absent", 404, "NoSuchKey"),
        ("/lake/nobranch/a", 404, "NoSuchBucket"),
        ("/lake/main~1/a", 405, "MethodNotAllowed"),
        ("/pond/v1/a", 405, "MethodNotAllowed"),
        ("/lake/main/", 400, "InvalidArgument"),
    ):
        reply = await lake.ask(method, target, "tagging", body)
        assert (reply.status, reply.code) == (status, code), target
    assert lake.graveler.staged == []


async def test_tags_of_what_is_not_there_are_not_told(lake: GatewayLake) -> None:
    for target in ("/lake/main/absent", "/lake/nobranch/a"):
        reply = await lake.ask("GET", target, "tagging")
        assert (reply.status, reply.code) == (404, "NoSuchKey")


async def test_who_may_only_write_sees_no_tags_and_who_may_only_read_sets_none(
    lake: GatewayLake,
) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=OLD)
    reply = await lake.ask("GET", "/lake/main/a", "tagging", key="AKIAWRITER")
    assert (reply.status, reply.code) == (403, "AccessDenied")
    for method in ("PUT", "DELETE"):
        reply = await lake.ask(method, "/lake/main/a", "tagging", document(), key="AKIAREADER")
        assert (reply.status, reply.code) == (403, "AccessDenied")
    assert lake.entry("lake", "main", "a").tags == TAGS


async def test_a_bucket_view_shows_and_takes_tags(lake: GatewayLake) -> None:
    lake.graveler.point("seen", "lake", "main")
    await lake.ask("PUT", "/seen/dir/a", body=SMALL, headers=OLD)
    assert await told(lake, "/seen/dir/a") == TAGS
    assert (await tag(lake, *NEW, target="/seen/dir/a")).status == 200
    assert lake.entry("lake", "main", "dir/a").tags == NEW
    lake.graveler.point("fixed", "lake", "main~0")
    assert await told(lake, "/fixed/dir/a") == NEW
    reply = await tag(lake, target="/fixed/dir/a")
    assert (reply.status, reply.code) == (405, "MethodNotAllowed")


# ---- copies, uploads and forms


def source(**headers: str) -> dict[str, str]:
    return {"x-amz-copy-source": "/lake/main/a"} | {
        f"x-amz-{name.replace('_', '-')}": value for name, value in headers.items()
    }


@pytest.mark.parametrize("target", ["/lake/main/b", "/pond/main/b"])
async def test_a_copy_has_the_tags_of_its_source_or_its_own(lake: GatewayLake, target: str) -> None:
    lake.create("pond")
    await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=OLD)
    for headers, tags in (
        (source(), TAGS),
        (source(tagging_directive="COPY", tagging="new=1"), TAGS),
        (source(metadata_directive="REPLACE"), TAGS),
        (source(tagging_directive="REPLACE", tagging="new=1"), (("new", "1"),)),
        (source(tagging_directive="REPLACE"), ()),
    ):
        assert (await lake.ask("PUT", target, headers=headers)).status == 200
        assert await told(lake, target) == tags


async def test_a_copy_of_an_object_onto_itself_may_change_its_tags(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=OLD)
    headers = source(tagging_directive="REPLACE", tagging="new=1")
    assert (await lake.ask("PUT", "/lake/main/a", headers=headers)).status == 200
    assert await told(lake) == (("new", "1"),)


@pytest.mark.parametrize("directive", ["MOVE", "", "replace"])
async def test_other_directives_are_refused(lake: GatewayLake, directive: str) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=OLD)
    headers = source(tagging_directive=directive)
    reply = await lake.ask("PUT", "/lake/main/b", headers=headers)
    assert (reply.status, reply.code) == (400, "InvalidArgument")
    assert b"<ArgumentName>x-amz-tagging-directive<" in reply.body


async def test_the_tags_of_an_upload_are_those_of_its_object(lake: GatewayLake) -> None:
    begun = await lake.ask("POST", "/lake/main/a", "uploads", headers=OLD)
    upload = f"uploadId={begun.all('UploadId')[0]}"
    part = await lake.ask("PUT", "/lake/main/a", f"partNumber=1&{upload}", SMALL)
    body = (
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber>"
        f"<ETag>{part.headers['etag']}</ETag></Part></CompleteMultipartUpload>"
    )
    assert (await lake.ask("POST", "/lake/main/a", upload, body.encode())).status == 200
    assert await told(lake) == TAGS


async def test_a_form_has_tags_in_a_document(lake: GatewayLake) -> None:
    fields = {"key": "main/a", "tagging": f"\n{document(*NEW).decode()}\n"}
    assert (await lake.post("lake", fields)).status == 204
    assert await told(lake) == NEW
    assert (await lake.post("lake", {"key": "main/a", **OLD})).status == 204
    assert await told(lake) == TAGS


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ("<Tagging/>", "MalformedXML"),
        ("a=1", "MalformedXML"),
        ("", "MissingRequestBodyError"),
        (document(("a,b", "")).decode(), "InvalidTag"),
        (document(*[(str(each), "") for each in range(11)]).decode(), "BadRequest"),
    ],
)
async def test_forms_with_tags_that_are_refused(lake: GatewayLake, field: str, code: str) -> None:
    reply = await lake.post("lake", {"key": "main/a", "tagging": field})
    assert (reply.status, reply.code) == (400, code)
    assert await lake.blocks_of("lake") == []


async def test_a_form_has_one_statement_of_tags(lake: GatewayLake) -> None:
    fields = {"key": "main/a", "tagging": document().decode(), **OLD}
    reply = await lake.post("lake", fields)
    assert (reply.status, reply.code) == (400, "InvalidArgument")
    unsigned = {"key": "main/a", "tagging": document(*NEW).decode()}
    conditions = [{"bucket": "lake"}, {"key": "main/a"}]
    reply = await lake.post("lake", unsigned, conditions=conditions)
    assert (reply.status, reply.code) == (403, "AccessDenied")
    assert lake.graveler.repos["lake"].branches["main"] == {}


# ---- what S3 refuses

SENTENCES = {
    "key": ("InvalidTag", "The TagKey you have provided is invalid"),
    "value": ("InvalidTag", "The TagValue you have provided is invalid"),
    "aws": ("InvalidTag", "Your TagKey cannot be prefixed with aws:"),
    "twice": ("InvalidTag", "Cannot provide multiple Tags with the same key"),
    "many": ("BadRequest", "Object tags cannot be greater than 10"),
    "header": (
        "InvalidArgument",
        "The header &#39;x-amz-tagging&#39; shall be encoded as UTF-8 then URLEncoded URL query "
        "parameters without tag name duplicates.",
    ),
}
ELEVEN = [(f"k{number}", "") for number in range(TAGS_MAX + 1)]


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        ([("", "v")], "key"),
        ([("k" * 129, "v")], "key"),
        ([("\U00020000" * 65, "v")], "key"),  # UTF-16 has two units for each
        *[([(f"a{sign}b", "")], "key") for sign in ",;?!*#%()\t\u200b\U0001f600"],
        *[([("a", f"a{sign}b")], "value") for sign in ",;?!*#%()\n\U0001f600"],
        ([("k", "v" * 257)], "value"),
        ([("aws:cost", "1")], "aws"),
        ([("AWS:cost", "1")], "aws"),
        ([("a", "1"), ("a", "1")], "twice"),
        (ELEVEN, "many"),
    ],
)
async def test_tags_beyond_a_limit_are_refused_with_s3_s_sentences(
    lake: GatewayLake, tags: list[tuple[str, str]], why: str
) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=OLD)
    pairs = "&".join(f"{quote(key)}={quote(value)}" for key, value in tags)
    by_document = await tag(lake, *tags)
    by_header = await lake.ask("PUT", "/lake/main/b", body=SMALL, headers={"x-amz-tagging": pairs})
    in_header = why if tags[0][0] and why != "twice" else "header"
    for reply, told_why in ((by_document, why), (by_header, in_header)):
        code, sentence = SENTENCES[told_why]
        assert (reply.status, reply.code) == (400, code)
        assert f"<Message>{sentence}</Message>".encode() in reply.body
    assert by_header.reads == 0
    assert await told(lake) == TAGS
    assert list(lake.graveler.repos["lake"].branches["main"]) == ["a"]


@pytest.mark.parametrize(
    "tags",
    [
        [("k" * 128, "v" * 256)],
        [("ключ 中文 +-=._:/@", "\u00a0 ½ é"), ("k", "")],
        [("\U00020000" * 64, "\U00020000" * 128)],
        ELEVEN[:10],
        [("Case", "1"), ("case", "2"), ("notaws:a", "")],
    ],
)
async def test_tags_at_their_limits_come_back(
    lake: GatewayLake, tags: list[tuple[str, str]]
) -> None:
    pairs = "&".join(f"{quote(key)}={quote(value)}" for key, value in tags)
    headers = {"x-amz-tagging": f"{pairs}&"}
    assert (await lake.ask("PUT", "/lake/main/b", body=SMALL, headers=headers)).status == 200
    assert await told(lake, "/lake/main/b") == tuple(sorted(tags))
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    assert (await tag(lake, *tags)).status == 200
    assert await told(lake) == tuple(sorted(tags))


@pytest.mark.parametrize("value", ["a=1&a=2", "=1", "a=%FF"])
async def test_a_header_that_is_no_list_of_tags_is_refused(lake: GatewayLake, value: str) -> None:
    reply = await lake.ask("PUT", "/lake/main/a", body=SMALL, headers={"x-amz-tagging": value})
    code, sentence = SENTENCES["header"]
    assert (reply.status, reply.code) == (400, code)
    assert f"<Message>{sentence}</Message>".encode() in reply.body


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "MissingRequestBodyError"),
        (b"<Tagging><TagSet>", "MalformedXML"),
        (b"<Tagging></Tagging>", "MalformedXML"),
        (b"<Tags><TagSet></TagSet></Tags>", "MalformedXML"),
        (b"<Tagging><TagSet/><TagSet/></Tagging>", "MalformedXML"),
        (b"<Tagging><Tag><Key>a</Key><Value/></Tag></Tagging>", "MalformedXML"),
        (b"<Tagging><TagSet><Key>a</Key></TagSet></Tagging>", "MalformedXML"),
        (b"<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>", "MalformedXML"),
        (b"<Tagging><TagSet><Tag><Value>a</Value></Tag></TagSet></Tagging>", "MalformedXML"),
        (
            b"<Tagging><TagSet><Tag><Key>a</Key><Key>a</Key><Value/></Tag></TagSet></Tagging>",
            "MalformedXML",
        ),
        (b"<Tagging><TagSet><Tag><Key>a</Key><V/></Tag></TagSet></Tagging>", "MalformedXML"),
        (b"<Tagging><TagSet><Tag><Key><a/></Key></Tag></TagSet></Tagging>", "MalformedXML"),
        (b"<Tagging>" + b" " * 65536 + b"<TagSet/></Tagging>", "MaxMessageLengthExceeded"),
    ],
)
async def test_other_documents_are_refused(lake: GatewayLake, body: bytes, code: str) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=OLD)
    reply = await lake.ask("PUT", "/lake/main/a", "tagging", body)
    assert (reply.status, reply.code) == (400, code)
    assert await told(lake) == TAGS


async def test_the_document_is_checked_against_its_checksum(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    wrong = {"content-md5": "AAAAAAAAAAAAAAAAAAAAAA=="}
    assert (await tag(lake, *NEW, headers=wrong)).code == "BadDigest"
    assert await told(lake) == ()

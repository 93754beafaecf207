"""Multipart uploads."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
import structlog
from gateway_lake import GatewayLake
from s3_multipart import begin, complete, crc32, listed, md5, part, sha256, sum_part

from tarn.core.entry import Checksum, unpack
from tarn.core.errors import Kind, Reason, TarnError

MIB5 = 5 * 1024**2
FIRST, LAST = bytes(range(256)) * (MIB5 // 256), b"the end"
NOWHERE = "0" * 32


def parts_kept(lake: GatewayLake) -> dict[Any, Any]:
    return {place: parts for place, parts in lake.blocks.uploads._parts.items() if parts}


BOTH = listed((1, md5(FIRST)), (2, md5(LAST)))


@pytest.mark.parametrize("can_abort", [True, False])
async def test_an_upload_whose_parts_have_no_place_is_ended(
    lake: GatewayLake, failure: Any, monkeypatch: pytest.MonkeyPatch, can_abort: bool
) -> None:
    async def begin_nothing(*_: object) -> None:
        raise failure(Kind.UNAVAILABLE, Reason.UNAVAILABLE)

    monkeypatch.setattr(lake.blocks.uploads, "begin", begin_nothing)
    if not can_abort:
        lake.graveler.fail["AbortUpload"] = [failure(Kind.UNAVAILABLE, Reason.UNAVAILABLE)]
    reply = await lake.ask("POST", "/lake/main/big", "uploads")
    assert reply.status == 503
    monkeypatch.undo()
    listing = await lake.ask("GET", "/lake", "uploads")
    assert len(listing.all("UploadId")) == (0 if can_abort else 1)


async def test_parts_become_one_object(lake: GatewayLake) -> None:
    headers = {"Content-Type": "text/plain", "x-amz-meta-job": "1"}
    upload = await begin(lake, headers=headers)
    assert (await part(lake, upload, 2, LAST)).headers["etag"] == f'"{md5(LAST)}"'
    await part(lake, upload, 1, FIRST)
    done = await complete(lake, upload, BOTH)
    assert done.status == 200
    joined = hashlib.md5(bytes.fromhex(md5(FIRST) + md5(LAST))).hexdigest()
    assert done.all("ETag") == [f'"{joined}-2"']
    assert done.all("Key") == ["main/big"]
    got = await lake.ask("GET", "/lake/main/big")
    assert got.body == FIRST + LAST
    assert (got.headers["etag"], got.headers["content-type"]) == (f'"{joined}-2"', "text/plain")
    assert got.headers["x-amz-meta-job"] == "1"
    assert parts_kept(lake) == {}


async def test_a_later_part_of_a_number_replaces_an_earlier_one(lake: GatewayLake) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, b"old")
    await part(lake, upload, 1, LAST)
    assert (await complete(lake, upload, listed((1, md5(b"old"))))).code == "InvalidPart"
    assert (await complete(lake, upload, listed((1, md5(LAST))))).status == 200
    assert (await lake.ask("GET", "/lake/main/big")).body == LAST


async def test_a_repeated_completion_gets_the_first_answer(lake: GatewayLake) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, LAST)
    first = await complete(lake, upload, listed((1, md5(LAST))))
    await lake.ask("PUT", "/lake/main/big", body=b"newer")
    again = await complete(lake, upload, listed((1, md5(LAST))))
    assert (again.status, again.body) == (200, first.body)
    assert (await lake.ask("GET", "/lake/main/big")).body == b"newer"
    assert (await complete(lake, upload, listed((1, md5(b"else"))))).code == "NoSuchUpload"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (listed((2, md5(LAST)), (1, md5(FIRST))), "InvalidPartOrder"),
        (listed((1, md5(FIRST)), (3, md5(LAST))), "InvalidPart"),
        (listed((1, md5(LAST)), (2, md5(LAST))), "InvalidPart"),
        (listed((0, md5(FIRST))), "InvalidArgument"),
        (listed(), "MalformedXML"),
        (b"<CompleteMultipartUpload>", "MalformedXML"),
        (b"", "MissingRequestBodyError"),
    ],
)
async def test_a_wrong_completion_changes_nothing(
    lake: GatewayLake, body: bytes, code: str
) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, FIRST)
    await part(lake, upload, 2, LAST)
    assert (await complete(lake, upload, body)).code == code
    assert lake.graveler.repos["lake"].branches["main"] == {}
    assert await lake.blocks_of("lake") == []
    assert (await complete(lake, upload, BOTH)).status == 200


async def test_only_the_last_part_may_be_small(lake: GatewayLake) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, LAST)
    await part(lake, upload, 2, LAST)
    body = listed((1, md5(LAST)), (2, md5(LAST)))
    reply = await complete(lake, upload, body)
    assert (reply.status, reply.code) == (400, "EntityTooSmall")
    assert lake.graveler.uploads[upload].state == "open"


@pytest.mark.parametrize("number", ["0", "10001", "x", "-1", ""])
async def test_part_numbers_have_bounds(lake: GatewayLake, number: str) -> None:
    upload = await begin(lake)
    query = f"partNumber={number}&uploadId={upload}"
    reply = await lake.ask("PUT", "/lake/main/big", query, LAST)
    assert (reply.code, reply.reads) == ("InvalidArgument", 0)


@pytest.mark.parametrize("upload", [NOWHERE, "nonsense", ""])
async def test_unknown_uploads(lake: GatewayLake, upload: str) -> None:
    for reply in (
        await part(lake, upload, 1, LAST),
        await complete(lake, upload, listed((1, md5(LAST)))),
        await lake.ask("DELETE", "/lake/main/big", f"uploadId={upload}"),
        await lake.ask("GET", "/lake/main/big", f"uploadId={upload}"),
    ):
        assert (reply.status, reply.code) == (404, "NoSuchUpload")


async def test_an_upload_belongs_to_its_key(lake: GatewayLake) -> None:
    upload = await begin(lake)
    query = f"partNumber=1&uploadId={upload}"
    assert (await lake.ask("PUT", "/lake/dev/big", query, LAST)).code == "NoSuchUpload"
    assert (await lake.ask("DELETE", "/lake/main/b", f"uploadId={upload}")).code == "NoSuchUpload"


@pytest.mark.parametrize("body", [LAST, FIRST])
async def test_a_damaged_part_does_not_count(lake: GatewayLake, body: bytes) -> None:
    upload = await begin(lake)
    wrong = {"Content-MD5": base64.b64encode(bytes(16)).decode()}
    assert (await part(lake, upload, 1, body, headers=wrong)).code == "BadDigest"
    assert (await part(lake, upload, 1, body, received=body[:-1])).code == "IncompleteBody"
    assert lake.graveler.uploads[upload].parts == {}
    assert parts_kept(lake) == {}


async def test_an_aborted_upload_is_gone_with_its_parts(lake: GatewayLake) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, LAST)
    assert (await lake.ask("DELETE", "/lake/main/big", f"uploadId={upload}")).status == 204
    assert parts_kept(lake) == {}
    assert (await part(lake, upload, 1, LAST)).code == "NoSuchUpload"
    assert (await complete(lake, upload, listed((1, md5(LAST))))).code == "NoSuchUpload"


async def test_a_part_that_comes_too_late_leaves_no_bytes(lake: GatewayLake, failure: Any) -> None:
    upload = await begin(lake)
    ended = failure(Kind.NOT_FOUND, Reason.UPLOAD_NOT_FOUND)
    lake.graveler.fail["RecordUploadPart"] = [ended]
    assert (await part(lake, upload, 1, LAST)).code == "NoSuchUpload"
    assert parts_kept(lake) == {}


async def test_completions_are_conditional(lake: GatewayLake) -> None:
    first, second = await begin(lake), await begin(lake)
    for upload in (first, second):
        await part(lake, upload, 1, LAST)
    names = listed((1, md5(LAST)))
    absent = await complete(lake, first, names, {"If-Match": '"x"'})
    assert (absent.status, absent.code) == (404, "NoSuchKey")
    assert lake.graveler.uploads[first].state == "open"
    made = await complete(lake, first, names, {"If-None-Match": "*"})
    assert made.status == 200
    again = await complete(lake, first, names, {"If-None-Match": "*"})
    assert (again.status, again.body) == (200, made.body)
    refused = await complete(lake, second, names, {"If-None-Match": "*"})
    assert (refused.status, refused.code) == (412, "PreconditionFailed")
    assert lake.graveler.uploads[second].state == "open"
    assert (await complete(lake, second, names, {"If-Match": "*"})).status == 200


async def test_a_conditional_completion_names_the_upload_as_its_operation(
    lake: GatewayLake,
) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, LAST)
    await complete(lake, upload, listed((1, md5(LAST))), {"If-None-Match": "*"})
    (entry,) = lake.graveler.repos["lake"].branches["main"].values()
    assert unpack(entry).operation_id == upload


async def test_an_upload_does_not_begin_with_a_condition(lake: GatewayLake) -> None:
    reply = await lake.ask("POST", "/lake/main/a", "uploads", headers={"If-None-Match": "*"})
    assert (reply.status, reply.code) == (501, "NotImplemented")


async def test_an_uncertain_end_is_tried_again_under_its_claim(
    lake: GatewayLake, failure: Any
) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, LAST)
    lake.graveler.fail["FinishCompleteUpload"] = [
        failure(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN)
    ]
    lake.clock.hurries = True
    assert (await complete(lake, upload, listed((1, md5(LAST))))).status == 200
    assert lake.graveler.calls.count("FinishCompleteUpload") == 2


async def test_a_claim_whose_answer_is_lost_is_made_again(lake: GatewayLake, failure: Any) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, LAST)
    lake.graveler.lose["BeginCompleteUpload"] = [failure(Kind.DEADLINE, Reason.DEADLINE_EXCEEDED)]
    lake.clock.hurries = True
    assert (await complete(lake, upload, listed((1, md5(LAST))))).status == 200
    assert lake.graveler.calls.count("BeginCompleteUpload") == 2


async def test_a_claim_whose_answers_are_all_lost_does_not_make_the_client_wait(
    lake: GatewayLake, failure: Any
) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, LAST)
    late = failure(Kind.DEADLINE, Reason.DEADLINE_EXCEEDED)
    lake.graveler.lose["BeginCompleteUpload"] = [late] * 3
    lake.clock.hurries = True
    assert (await complete(lake, upload, listed((1, md5(LAST))))).status == 503
    assert (await complete(lake, upload, listed((1, md5(LAST))))).status == 200


async def test_an_end_that_stays_uncertain_is_503(lake: GatewayLake, failure: Any) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, LAST)
    unknown = failure(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN)
    lake.graveler.fail["FinishCompleteUpload"] = [unknown] * 3
    lake.clock.hurries = True
    reply = await complete(lake, upload, listed((1, md5(LAST))))
    assert (reply.status, reply.code) == (503, "ServiceUnavailable")
    assert lake.graveler.uploads[upload].state == "completing", "it may be staged"
    first, second = lake.clock.pauses
    assert 0 < first < second < 10  # the pauses grow, and end before a client gives up
    assert (await complete(lake, upload, listed((1, md5(LAST))))).status == 200, "at once"


async def test_an_end_that_is_refused_opens_the_upload_again(
    lake: GatewayLake, failure: Any
) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, LAST)
    gone = failure(Kind.NOT_FOUND, Reason.BRANCH_NOT_FOUND)
    lake.graveler.fail["FinishCompleteUpload"] = [gone]
    assert (await complete(lake, upload, listed((1, md5(LAST))))).code == "NoSuchBucket"
    # The block exists already; it is compared with the parts before it is used.
    assert (await complete(lake, upload, listed((1, md5(LAST))))).status == 200


async def test_an_end_that_a_rule_blocks_opens_the_upload_again(
    lake: GatewayLake, failure: Any
) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, LAST)
    lake.graveler.fail["FinishCompleteUpload"] = [failure(Kind.DENIED, Reason.BRANCH_PROTECTED)]
    reply = await complete(lake, upload, listed((1, md5(LAST))))
    assert (reply.status, reply.code) == (403, "AccessDenied")
    assert lake.graveler.uploads[upload].state == "open"


async def test_an_end_beyond_a_quota_opens_the_upload_again(
    lake: GatewayLake, failure: Any
) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, LAST)
    full = failure(Kind.EXHAUSTED, Reason.QUOTA_EXCEEDED)
    lake.graveler.fail["FinishCompleteUpload"] = [full]
    reply = await complete(lake, upload, listed((1, md5(LAST))))
    assert (reply.status, reply.code) == (403, "QuotaExceeded")
    assert lake.graveler.uploads[upload].state == "open"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(Kind.DENIED, Reason.BRANCH_PROTECTED), (Kind.EXHAUSTED, Reason.QUOTA_EXCEEDED)],
)
async def test_an_end_that_is_denied_after_an_uncertain_one_is_503(
    lake: GatewayLake, failure: Any, kind: Kind, reason: Reason
) -> None:
    """The first attempt may still stage the object: its process may not have recorded that it tries."""
    upload = await begin(lake)
    await part(lake, upload, 1, LAST)
    unknown = failure(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN)
    denied = failure(kind, reason)
    lake.graveler.fail["FinishCompleteUpload"] = [unknown, denied]
    lake.clock.hurries = True
    reply = await complete(lake, upload, listed((1, md5(LAST))))
    assert (reply.status, reply.code) == (503, "ServiceUnavailable")
    assert lake.graveler.uploads[upload].state == "completing"


async def test_a_block_of_other_parts_is_not_believed(lake: GatewayLake, failure: Any) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, LAST)
    gone = failure(Kind.NOT_FOUND, Reason.BRANCH_NOT_FOUND)
    lake.graveler.fail["FinishCompleteUpload"] = [gone]
    await complete(lake, upload, listed((1, md5(LAST))))
    for other in (LAST[::-1], LAST + b"!"):
        await part(lake, upload, 1, other)
        assert (await complete(lake, upload, listed((1, md5(other))))).code == "InvalidPart"
    assert lake.graveler.repos["lake"].branches["main"] == {}


async def test_a_block_that_another_completion_makes_meanwhile_is_not_believed(
    lake: GatewayLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway paused before it joined, and lost its claim; the client replaced a part by one of the same size, and
    completes again. The first gateway wakes up and joins right before the second one does."""
    upload = await begin(lake)
    uploads = lake.blocks.uploads
    join = uploads.complete
    orders: list[tuple[Any, ...]] = []

    async def paused(*args: Any) -> object:
        orders.append(args)
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "it sleeps")

    async def beside_the_first(*args: Any) -> object:
        await join(*orders[0])
        return await join(*args)

    await part(lake, upload, 1, LAST)
    monkeypatch.setattr(uploads, "complete", paused)
    assert (await complete(lake, upload, listed((1, md5(LAST))))).status == 503
    other = LAST[::-1]
    await part(lake, upload, 1, other)
    monkeypatch.setattr(uploads, "complete", beside_the_first)
    assert (await complete(lake, upload, listed((1, md5(other))))).code == "InvalidPart"
    assert lake.graveler.repos["lake"].branches["main"] == {}


async def test_lost_part_bytes_are_an_internal_error(lake: GatewayLake) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, LAST)
    for parts in lake.blocks.uploads._parts.values():
        parts.clear()
    reply = await complete(lake, upload, listed((1, md5(LAST))))
    assert (reply.status, reply.code) == (500, "InternalError")


async def test_an_upload_that_ends_while_its_parts_are_joined_is_gone_and_nothing_is_lost(
    lake: GatewayLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, LAST)
    uploads = lake.blocks.uploads
    join = uploads.complete

    async def ended_first(*args: Any) -> object:
        monkeypatch.setattr(uploads, "complete", join)
        assert (await lake.ask("DELETE", "/lake/main/big", f"uploadId={upload}")).status == 204
        return await join(*args)

    monkeypatch.setattr(uploads, "complete", ended_first)
    with structlog.testing.capture_logs() as logs:
        reply = await complete(lake, upload, listed((1, md5(LAST))))
    assert (reply.status, reply.code) == (404, "NoSuchUpload")
    assert "recorded part lost" not in [each["event"] for each in logs]


# Checksums


@pytest.mark.parametrize("kind", ["COMPOSITE", "FULL_OBJECT"])
async def test_checksums_of_parts_make_that_of_the_object(lake: GatewayLake, kind: str) -> None:
    headers = {"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": kind}
    upload = await begin(lake, headers=headers)
    assert (await sum_part(lake, upload, 1, FIRST)).headers["x-amz-checksum-crc32"]
    # The gateway computes what a client does not send for the checksum of the whole object.
    given = await (part if kind == "FULL_OBJECT" else sum_part)(lake, upload, 2, LAST)
    assert given.headers["x-amz-checksum-crc32"] == crc32(LAST)
    numbers = (1, md5(FIRST)), (2, md5(LAST))
    both = listed(*numbers, crc32s=[crc32(FIRST), crc32(LAST)])
    done = await complete(lake, upload, BOTH if kind == "FULL_OBJECT" else both)
    if kind == "FULL_OBJECT":
        expected = Checksum("CRC32", crc32(FIRST + LAST))
    else:
        inner = base64.b64decode(crc32(FIRST)) + base64.b64decode(crc32(LAST))
        expected = Checksum("CRC32", f"{crc32(inner)}-2", composite=True)
    assert done.all("ChecksumCRC32") == [expected.value]
    assert done.all("ChecksumType") == [kind]
    assert lake.entry("lake", "main", "big").checksums == (expected,)
    mode = {"x-amz-checksum-mode": "ENABLED"}
    head = await lake.ask("HEAD", "/lake/main/big", headers=mode)
    assert head.headers["x-amz-checksum-type"] == kind


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"x-amz-checksum-crc32": crc32(LAST)}, None),
        ({"x-amz-checksum-crc32": crc32(b"other")}, "BadDigest"),
        ({"x-amz-checksum-sha1": "x"}, "InvalidRequest"),
        ({"x-amz-checksum-crc32": "x"}, "InvalidRequest"),
        ({"x-amz-checksum-type": "COMPOSITE"}, "InvalidRequest"),
        ({"x-amz-checksum-type": "HALF"}, "InvalidRequest"),
        ({"x-amz-mp-object-size": str(len(LAST))}, None),
        ({"x-amz-mp-object-size": "1"}, "InvalidRequest"),
        ({"x-amz-mp-object-size": "many"}, "InvalidRequest"),
    ],
)
async def test_properties_of_the_object_sent_by_the_client_are_checked(
    lake: GatewayLake, headers: dict[str, str], code: str | None
) -> None:
    begun = {"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "FULL_OBJECT"}
    upload = await begin(lake, headers=begun)
    await part(lake, upload, 1, LAST)
    reply = await complete(lake, upload, listed((1, md5(LAST))), headers)
    assert (reply.status, reply.status != 200 and reply.code) == (
        (400, code) if code else (200, False)
    )


async def test_a_listed_checksum_must_be_the_part_s(lake: GatewayLake) -> None:
    upload = await begin(lake, headers={"x-amz-checksum-algorithm": "CRC32"})
    await sum_part(lake, upload, 1, LAST)
    for value, status in ((crc32(b"other"), 400), (crc32(LAST), 200)):
        body = listed((1, md5(LAST))).replace(
            b"</Part>", f"<ChecksumCRC32>{value}</ChecksumCRC32></Part>".encode()
        )
        assert (await complete(lake, upload, body)).status == status


async def test_a_listed_checksum_of_another_algorithm_is_not_ignored(lake: GatewayLake) -> None:
    upload = await begin(lake, headers={"x-amz-checksum-algorithm": "CRC32"})
    await sum_part(lake, upload, 1, LAST)
    claimed = (
        b"<ChecksumSHA256>n2alat9FhKiZXkZO18V2LLcZFM3IT8R7DjSMvK//7WU=</ChecksumSHA256></Part>"
    )
    refused = await complete(lake, upload, listed((1, md5(LAST))).replace(b"</Part>", claimed))
    assert (refused.status, refused.code) == (400, "BadDigest")
    named = listed((1, md5(LAST)), crc32s=[crc32(LAST)])
    assert (await complete(lake, upload, named)).status == 200


@pytest.mark.parametrize("checksums", [["x"], [crc32(LAST), crc32(LAST)], [crc32(LAST)[:-2]]])
async def test_a_part_has_one_checksum_that_can_be_one(
    lake: GatewayLake, checksums: list[str]
) -> None:
    upload = await begin(lake, headers={"x-amz-checksum-algorithm": "CRC32"})
    await sum_part(lake, upload, 1, LAST)
    sums = "".join(f"<ChecksumCRC32>{each}</ChecksumCRC32>" for each in checksums)
    body = listed((1, md5(LAST))).replace(b"</Part>", f"{sums}</Part>".encode())
    refused = await complete(lake, upload, body)
    assert (refused.status, refused.code) == (400, "InvalidArgument")
    assert refused.message == "Invalid Base64 or multiple checksums present in request"


@pytest.mark.parametrize("kind", ["", "COMPOSITE"])
async def test_a_checksum_of_parts_needs_that_of_each_part(lake: GatewayLake, kind: str) -> None:
    headers = {"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": kind}
    upload = await begin(lake, headers={name: value for name, value in headers.items() if value})
    await sum_part(lake, upload, 1, FIRST)
    await sum_part(lake, upload, 2, LAST)
    first = f"<ChecksumCRC32>{crc32(FIRST)}</ChecksumCRC32></Part>".encode()
    refused = await complete(lake, upload, BOTH.replace(b"</Part>", first, 1))
    assert (refused.status, refused.code) == (400, "InvalidRequest")
    assert (
        b"The upload was created using a crc32 checksum. The complete request must include the checksum for each part. "
        b"It was missing for part 2 in the request."
    ) in refused.body
    assert lake.graveler.repos["lake"].branches["main"] == {}
    assert lake.graveler.uploads[upload].state == "open"


@pytest.mark.parametrize(
    "headers",
    [
        {"x-amz-checksum-algorithm": "MD4"},
        {"x-amz-checksum-type": "COMPOSITE"},
        {"x-amz-checksum-algorithm": "SHA256", "x-amz-checksum-type": "FULL_OBJECT"},
        {"x-amz-checksum-algorithm": "CRC64NVME", "x-amz-checksum-type": "COMPOSITE"},
        {"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "HALF"},
    ],
)
async def test_checksum_plans_that_s3_does_not_have(
    lake: GatewayLake, headers: dict[str, str]
) -> None:
    reply = await lake.ask("POST", "/lake/main/big", "uploads", headers=headers)
    assert (reply.status, reply.code) == (400, "InvalidRequest")
    assert "CreateUpload" not in lake.graveler.calls


CRC, SHA = {"x-amz-checksum-crc32": crc32(LAST)}, {"x-amz-checksum-sha256": sha256(LAST)}


@pytest.mark.parametrize(
    ("algorithm", "kind", "sent", "actual"),
    [
        ("CRC32", "COMPOSITE", SHA, "sha256"),
        ("CRC32", "FULL_OBJECT", SHA, "sha256"),
        ("CRC32", "COMPOSITE", {}, "null"),
        ("CRC32", "", {}, "null"),
        ("SHA256", "COMPOSITE", CRC, "crc32"),
        ("CRC64NVME", "", CRC, "crc32"),
    ],
)
async def test_a_part_has_the_checksum_that_its_upload_was_begun_with(
    lake: GatewayLake, algorithm: str, kind: str, sent: dict[str, str], actual: str
) -> None:
    begun = {"x-amz-checksum-algorithm": algorithm, "x-amz-checksum-type": kind}
    upload = await begin(lake, headers={name: value for name, value in begun.items() if value})
    refused = await part(lake, upload, 1, LAST, headers=sent)
    assert (refused.status, refused.code, refused.reads) == (400, "InvalidRequest", 0)
    assert refused.message.startswith(
        f"Checksum Type mismatch occurred, expected checksum Type: {algorithm.lower()}, "
        f"actual checksum Type: {actual}"
    )
    assert lake.graveler.uploads[upload].parts == {}
    assert parts_kept(lake) == {}


@pytest.mark.parametrize("sent", [{}, CRC, SHA])
async def test_parts_of_an_upload_without_a_checksum_may_have_any(
    lake: GatewayLake, sent: dict[str, str]
) -> None:
    """SDKs add a CRC32 to each part by themselves."""
    upload = await begin(lake)
    given = await part(lake, upload, 1, LAST, headers=sent)
    assert {name: given.headers[name] for name in sent} == sent
    assert (await complete(lake, upload, listed((1, md5(LAST))))).status == 200
    assert lake.entry("lake", "main", "big").checksums == ()


# Copies into parts


async def test_a_part_may_be_a_range_of_an_object(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/dev/source", body=FIRST + b"x")
    upload = await begin(lake, headers={"x-amz-checksum-algorithm": "CRC32"})
    query = f"partNumber=1&uploadId={upload}"
    headers = {
        "x-amz-copy-source": "/lake/dev/source",
        "x-amz-copy-source-range": "bytes=256-511",
    }
    copied = await lake.ask("PUT", "/lake/main/big", query, headers=headers)
    piece = bytes(range(256))
    assert copied.all("ETag") == [f'"{md5(piece)}"']
    assert copied.all("ChecksumCRC32") == [crc32(piece)]
    await complete(lake, upload, listed((1, md5(piece)), crc32s=[crc32(piece)]))
    assert (await lake.ask("GET", "/lake/main/big")).body == piece


@pytest.mark.parametrize(
    ("wanted", "status", "code"),
    [
        ("bytes=0-", 400, "InvalidArgument"),
        ("bytes=5-1", 400, "InvalidArgument"),
        ("0-1", 400, "InvalidArgument"),
        ("bytes=0-99", 400, "InvalidArgument"),
        ("bytes=0-1", 400, "InvalidRequest"),
    ],
)
async def test_a_copied_range_must_be_exact(
    lake: GatewayLake, wanted: str, status: int, code: str
) -> None:
    await lake.ask("PUT", "/lake/dev/source", body=LAST)
    upload = await begin(lake)
    query = f"partNumber=1&uploadId={upload}"
    headers = {"x-amz-copy-source": "/lake/dev/source", "x-amz-copy-source-range": wanted}
    reply = await lake.ask("PUT", "/lake/main/big", query, headers=headers)
    assert (reply.status, reply.code) == (status, code)
    assert lake.graveler.uploads[upload].parts == {}


# Listings


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("/lake/nobranch/a", 404, "NoSuchBucket"),
        ("/lake/v1/a", 405, "MethodNotAllowed"),
        ("/lake/main", 400, "InvalidArgument"),
        ("/lake/main/" + "k" * 1025, 400, "KeyTooLongError"),
    ],
)
async def test_uploads_go_to_paths_on_branches(
    lake: GatewayLake, target: str, status: int, code: str
) -> None:
    reply = await lake.ask("POST", target, "uploads")
    assert (reply.status, reply.code) == (status, code)

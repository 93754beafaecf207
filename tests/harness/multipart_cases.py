"""What clients may do with multipart uploads on a running Tarn, whatever store keeps its blocks.

Each case is a function of a Tarn and of a place for its objects: a bucket whose keys are paths, or a branch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from running_tarn import Place, RunningTarn
from tests.support.faults.http_fault_proxy import Fault, HttpFaultProxy

from tarn.core.entry_check import PARTS_MAX

__all__ = ["CASES", "SMALL_PARTS", "an_object_of_ten_thousand_parts"]

Case = Callable[[RunningTarn, Place], None]

SMALL_PARTS = Path(__file__).parent / "small_parts"
"""The Python path of a Tarn that takes parts of any size."""
MIB5 = bytes(range(256)) * (5 * 4096)
TAIL = b"the end"
ONCE = {"total_max_attempts": 1}
"""The SDK repeats nothing by itself."""
ROUNDS = 6
COMPLETIONS = 10


def code_of(call: Callable[..., Any], **arguments: Any) -> str:
    """Returns S3's error code of a call; empty if it succeeds."""
    try:
        call(**arguments)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def read(s3: Any, at: dict[str, str]) -> bytes | None:
    """Returns the bytes of an object; None if there is none."""
    try:
        return bytes(s3.get_object(**at)["Body"].read())
    except s3.exceptions.NoSuchKey:
        return None


def begin(s3: Any, at: dict[str, str]) -> dict[str, str]:
    """Begins an upload; returns the arguments of its steps."""
    return {**at, "UploadId": s3.create_multipart_upload(**at)["UploadId"]}


def send(s3: Any, upload: dict[str, str], *bodies: bytes) -> dict[str, Any]:
    """Sends parts; returns the argument of the completion."""
    sent = [
        {
            "PartNumber": number,
            "ETag": s3.upload_part(**upload, PartNumber=number, Body=body)["ETag"],
        }
        for number, body in enumerate(bodies, 1)
    ]
    return {"MultipartUpload": {"Parts": sent}}


def open_uploads(s3: Any, place: Place) -> list[dict[str, Any]]:
    """Returns the open uploads of a place."""
    found = s3.list_multipart_uploads(Bucket=place.bucket, Prefix=place.root)
    return list(found.get("Uploads", []))


def each_step_is_sent_again_after_a_lost_answer(tarn: RunningTarn, place: Place) -> None:
    """The server does each step, and its client sees a closed connection. It sends the same bytes again."""
    target = urlsplit(tarn.endpoint)
    at = {"Bucket": place.bucket, "Key": f"{place.root}again/ü b"}
    source = {"Bucket": place.bucket, "Key": f"{place.root}again/source"}
    with (
        HttpFaultProxy(str(target.hostname), target.port or 80) as proxy,
        closing(replace(tarn, endpoint=proxy.url).s3(retries=ONCE)) as s3,
    ):

        def twice(call: Callable[..., Any], **arguments: Any) -> Any:
            proxy.plan(Fault.LOST_REPLY)
            with pytest.raises(HTTPClientError):
                call(**arguments)
            return call(**arguments)

        twice(s3.put_object, **source, Body=TAIL)
        upload = {**at, "UploadId": twice(s3.create_multipart_upload, **at)["UploadId"]}
        # A client that never heard of an upload finds it in the list.
        ids = {each["UploadId"] for each in open_uploads(s3, place)}
        assert len(ids) == 2
        (unheard,) = ids - {upload["UploadId"]}
        first = twice(s3.upload_part, **upload, PartNumber=1, Body=MIB5)
        copied = twice(s3.upload_part_copy, **upload, PartNumber=2, CopySource=source)
        etags = [first["ETag"], copied["CopyPartResult"]["ETag"]]
        listed = twice(s3.list_parts, **upload)["Parts"]
        assert [(each["PartNumber"], each["ETag"], each["Size"]) for each in listed] == [
            (1, etags[0], len(MIB5)),
            (2, etags[1], len(TAIL)),
        ]
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        whole = {**upload, "MultipartUpload": {"Parts": parts}}
        done = twice(s3.complete_multipart_upload, **whole)
        head = s3.head_object(**at)
        assert (head["ETag"], head["ContentLength"]) == (done["ETag"], len(MIB5 + TAIL))
        assert read(s3, at) == MIB5 + TAIL
        # Steps that come too late change nothing.
        assert code_of(s3.upload_part, **upload, PartNumber=1, Body=TAIL) == "NoSuchUpload"
        assert code_of(s3.abort_multipart_upload, **upload) == "NoSuchUpload"
        s3.put_object(**at, Body=b"newer")
        assert s3.complete_multipart_upload(**whole)["ETag"] == done["ETag"]
        assert read(s3, at) == b"newer"
        other = {**at, "UploadId": unheard}
        assert code_of(partial(twice, s3.abort_multipart_upload), **other) == "NoSuchUpload"
        assert open_uploads(s3, place) == []


def a_small_part_is_refused_at_completion(tarn: RunningTarn, place: Place) -> None:
    """The upload goes on: it is completed when the part is large enough."""
    with closing(tarn.s3(retries=ONCE)) as s3:
        at = {"Bucket": place.bucket, "Key": f"{place.root}small"}
        upload = begin(s3, at)
        small = send(s3, upload, MIB5[1:], TAIL)
        assert code_of(s3.complete_multipart_upload, **upload, **small) == "EntityTooSmall"
        assert read(s3, at) is None
        whole = send(s3, upload, MIB5, TAIL)
        assert code_of(s3.complete_multipart_upload, **upload, **small) == "InvalidPart"
        assert s3.complete_multipart_upload(**upload, **whole)["ETag"].endswith('-2"')
        assert read(s3, at) == MIB5 + TAIL
        # The only part may be small, and so may all parts that are not listed.
        upload = begin(s3, at)
        parts = send(s3, upload, TAIL, MIB5[1:])["MultipartUpload"]["Parts"]
        only = {"MultipartUpload": {"Parts": parts[1:]}}
        s3.complete_multipart_upload(**upload, **only)
        assert read(s3, at) == MIB5[1:]


def open_uploads_are_listed_in_pages(tarn: RunningTarn, place: Place) -> None:
    """By prefix, delimiter and markers; several uploads of one key are several rows."""
    names = ["a", "a", "a", "dir/1", "dir/2", "dir/2", "z ü"]
    with closing(tarn.s3(retries=ONCE)) as s3:
        keys = [f"{place.root}{name}" for name in names]
        made = [begin(s3, {"Bucket": place.bucket, "Key": key}) for key in keys]

        def rows(most: int, prefix: str = "", **more: str) -> list[str]:
            seen: list[str] = []
            ids: list[str] = []
            markers: dict[str, str] = {}
            while True:
                page = s3.list_multipart_uploads(
                    Bucket=place.bucket,
                    Prefix=f"{place.root}{prefix}",
                    MaxUploads=most,
                    **more,
                    **markers,
                )
                uploads, folders = page.get("Uploads", []), page.get("CommonPrefixes", [])
                assert 0 < len(uploads) + len(folders) <= most
                ids += [each["UploadId"] for each in uploads]
                found = [each["Key"] for each in uploads] + [each["Prefix"] for each in folders]
                seen += sorted(found)
                if not page["IsTruncated"]:
                    assert len(set(ids)) == len(ids), "no upload is listed twice"
                    return [key.removeprefix(place.root) for key in seen]
                markers = {"KeyMarker": page["NextKeyMarker"]}
                if page.get("NextUploadIdMarker"):
                    markers["UploadIdMarker"] = page["NextUploadIdMarker"]

        for most in (1, 2, 1000):
            assert rows(most) == names
            assert rows(most, "dir/") == names[3:6]
            assert rows(most, Delimiter="/") == ["a", "a", "a", "dir/", "z ü"]
        for upload in made:
            s3.abort_multipart_upload(**upload)
        assert open_uploads(s3, place) == []


def an_abort_beside_a_completion(tarn: RunningTarn, place: Place) -> None:
    """Exactly one of both succeeds. The object is whole or absent, and a completion that was acknowledged stays."""
    with (
        closing(tarn.s3(retries=ONCE)) as s3,
        closing(tarn.s3(retries=ONCE)) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        for number in range(ROUNDS):
            at = {"Bucket": place.bucket, "Key": f"{place.root}raced/{number}"}
            body = (MIB5, TAIL)[number % 2]
            upload = begin(s3, at)
            whole = {**upload, **send(s3, upload, body)}
            together = threading.Barrier(2)

            def at_once(
                call: Callable[..., Any],
                arguments: dict[str, Any],
                together: threading.Barrier = together,
            ) -> str:
                together.wait(30)
                return code_of(call, **arguments)

            completing = pool.submit(at_once, s3.complete_multipart_upload, whole)
            aborting = pool.submit(at_once, other.abort_multipart_upload, upload)
            completed, aborted = completing.result(), aborting.result()
            if completed == "":
                # 503: the upload was being completed.
                assert aborted in ("NoSuchUpload", "ServiceUnavailable")
                assert read(s3, at) == body
                assert code_of(other.abort_multipart_upload, **upload) == "NoSuchUpload"
                assert read(s3, at) == body
            else:
                assert (completed, aborted) == ("NoSuchUpload", "")
                assert read(s3, at) is None
                assert code_of(s3.complete_multipart_upload, **whole) == "NoSuchUpload"
        assert open_uploads(s3, place) == []


def a_view_is_pointed_elsewhere_meanwhile(tarn: RunningTarn, place: Place) -> None:
    """An upload belongs to its branch. It goes on by the key of the repository, and when the view shows it again."""
    del place  # needs a view and the repository behind it
    repository = tarn.new_repository()
    bucket = f"{repository}-parts"
    tarn.ok("branch", "create", f"{repository}/dev", "--from", "main")
    tarn.ok("bucket", "create", bucket, "--to", f"{repository}/main")

    def point(branch: str) -> None:
        tarn.ok("bucket", "point", bucket, "--to", f"{repository}/{branch}")

    with (
        closing(tarn.s3(retries=ONCE)) as s3,
        ThreadPoolExecutor(1) as pool,
    ):
        at, by_repository = (
            {"Bucket": bucket, "Key": "big"},
            {"Bucket": repository, "Key": "main/big"},
        )
        upload = begin(s3, at)
        whole = {**upload, **send(s3, upload, MIB5)}
        point("dev")
        for step, arguments in (
            (s3.upload_part, {**upload, "PartNumber": 2, "Body": TAIL}),
            (s3.list_parts, upload),
            (s3.complete_multipart_upload, whole),
            (s3.abort_multipart_upload, upload),
        ):
            assert code_of(step, **arguments) == "NoSuchUpload"
        assert open_uploads(s3, Place(bucket, "")) == []
        (found,) = open_uploads(s3, Place(repository, "main/"))
        assert (found["Key"], found["UploadId"]) == ("main/big", upload["UploadId"])
        second = s3.upload_part(**{**upload, **by_repository}, PartNumber=2, Body=TAIL)
        point("main")
        whole["MultipartUpload"]["Parts"].append({"PartNumber": 2, "ETag": second["ETag"]})
        done = s3.complete_multipart_upload(**whole)
        assert s3.head_object(**by_repository)["ETag"] == done["ETag"]
        assert read(s3, at) == MIB5 + TAIL
        # Beside completions the view moves. Whatever their client hears, nothing comes to the other branch.
        uploads = [
            begin(s3, {"Bucket": bucket, "Key": f"{number}"}) for number in range(COMPLETIONS)
        ]
        wholes = [{**each, **send(s3, each, TAIL)} for each in uploads]
        completing = pool.submit(
            lambda: [code_of(s3.complete_multipart_upload, **each) for each in wholes]
        )
        point("dev")
        assert {*completing.result()} <= {"", "NoSuchUpload", "ServiceUnavailable"}
        assert "Contents" not in s3.list_objects_v2(Bucket=bucket)
        point("main")
        assert [code_of(s3.complete_multipart_upload, **each) for each in wholes] == [
            ""
        ] * COMPLETIONS
        assert len(s3.list_objects_v2(Bucket=bucket)["Contents"]) == COMPLETIONS + 1


def an_object_of_ten_thousand_parts(tarn: RunningTarn, place: Place) -> None:
    """Of a Tarn with `SMALL_PARTS`: each part is sent, listed and found in the object."""
    at = {"Bucket": place.bucket, "Key": f"{place.root}many"}
    bodies = [b"%d\n" % number for number in range(1, PARTS_MAX + 1)]
    with closing(tarn.s3(read_timeout=300)) as s3, ThreadPoolExecutor(8) as pool:
        upload = begin(s3, at)

        def send_part(number: int) -> str:
            sent = s3.upload_part(**upload, PartNumber=number, Body=bodies[number - 1])
            return str(sent["ETag"])

        etags = [*pool.map(send_part, range(1, PARTS_MAX + 1))]
        beyond = {**upload, "PartNumber": PARTS_MAX + 1, "Body": TAIL}
        assert code_of(s3.upload_part, **beyond) == "InvalidArgument"
        pages = s3.get_paginator("list_parts").paginate(**upload)
        listed = [(each["PartNumber"], each["ETag"]) for page in pages for each in page["Parts"]]
        assert listed == [*enumerate(etags, 1)]
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in listed]
        done = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        assert done["ETag"].endswith(f'-{PARTS_MAX}"')
        assert read(s3, at) == b"".join(bodies)
        last = s3.get_object(**at, PartNumber=PARTS_MAX)
        assert (last["Body"].read(), last["PartsCount"]) == (bodies[-1], PARTS_MAX)
        assert open_uploads(s3, place) == []


CASES: dict[str, Case] = {
    case.__name__: case
    for case in (
        each_step_is_sent_again_after_a_lost_answer,
        a_small_part_is_refused_at_completion,
        open_uploads_are_listed_in_pages,
        an_abort_beside_a_completion,
        a_view_is_pointed_elsewhere_meanwhile,
    )
}
"""By their names, which are the ids of tests."""

"""The S3 behaviour that clients rely on, on a real Tarn: refs in keys, copies, uploads across commits, refusals."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError

pytestmark = pytest.mark.every_form

MIB5 = bytes(range(256)) * (5 * 4096)
TAIL = b"the end"


def code(caught: pytest.ExceptionInfo[ClientError]) -> tuple[int, str]:
    response = caught.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


def blocks(tarn: Any) -> set[Path]:
    """A body of 5 MiB is stored as a file, not in the store of small blocks."""
    return {path for path in Path(tarn.data).rglob("data/*/*") if path.is_file()}


@pytest.mark.on_cassandra("three")
def test_a_copy_inside_a_repository_writes_no_block(tarn: Any, s3: Any, repository: str) -> None:
    s3.put_object(Bucket=repository, Key="main/a", Body=MIB5, Metadata={"job": "1"})
    before = blocks(tarn)
    copied = s3.copy_object(
        Bucket=repository, Key="main/b", CopySource={"Bucket": repository, "Key": "main/a"}
    )
    assert copied["CopyObjectResult"]["ETag"] == f'"{hashlib.md5(MIB5).hexdigest()}"'
    assert blocks(tarn) == before
    got = s3.get_object(Bucket=repository, Key="main/b")
    assert (got["Body"].read(), got["Metadata"]) == (MIB5, {"job": "1"})


def test_a_copy_to_another_repository_has_its_own_block(
    tarn: Any, s3: Any, repository: str
) -> None:
    other = tarn.new_repository()
    s3.put_object(Bucket=repository, Key="main/a", Body=MIB5)
    before = blocks(tarn)
    source = {"Bucket": repository, "Key": "main/a"}
    s3.copy_object(Bucket=other, Key="main/a", CopySource=source)
    assert len(blocks(tarn)) == len(before) + 1
    assert s3.get_object(Bucket=other, Key="main/a")["Body"].read() == MIB5


@pytest.mark.on_cassandra("three")
def test_an_upload_survives_a_commit_and_repeats_its_answer(
    tarn: Any, s3: Any, repository: str
) -> None:
    where = {"Bucket": repository, "Key": "main/big"}
    upload = s3.create_multipart_upload(**where)["UploadId"]
    parts = []
    for number, body in ((1, MIB5), (2, TAIL)):
        sent = s3.upload_part(**where, UploadId=upload, PartNumber=number, Body=body)
        parts.append({"PartNumber": number, "ETag": sent["ETag"]})
        if number == 1:
            s3.put_object(Bucket=repository, Key="main/other", Body=b"x")
            assert tarn.cli("commit", f"{repository}/main", "-m", "between").code == 0
    listed = s3.list_multipart_uploads(Bucket=repository, Prefix="main/")["Uploads"]
    assert [(each["Key"], each["UploadId"]) for each in listed] == [("main/big", upload)]
    assert [part["Size"] for part in s3.list_parts(**where, UploadId=upload)["Parts"]] == [
        len(MIB5),
        len(TAIL),
    ]
    manifest = {"Parts": parts}
    first = s3.complete_multipart_upload(**where, UploadId=upload, MultipartUpload=manifest)
    assert first["ETag"].endswith('-2"')
    s3.put_object(**where, Body=b"newer")
    again = s3.complete_multipart_upload(**where, UploadId=upload, MultipartUpload=manifest)
    assert again["ETag"] == first["ETag"]
    assert s3.get_object(**where)["Body"].read() == b"newer"
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=repository, Prefix="main/")


@pytest.mark.on_cassandra("three")
def test_parts_are_read_wherever_versioning_takes_their_object(
    tarn: Any, s3: Any, repository: str
) -> None:
    bodies = (MIB5, MIB5[:-1] + b"x", TAIL)
    where = {"Bucket": repository, "Key": "main/big"}
    upload = s3.create_multipart_upload(**where, ChecksumAlgorithm="CRC32C")["UploadId"]
    parts = []
    for number, body in enumerate(bodies, 1):
        about = {"UploadId": upload, "PartNumber": number, "ChecksumAlgorithm": "CRC32C"}
        sent = s3.upload_part(**where, **about, Body=body)
        about = {name: sent[name] for name in ("ETag", "ChecksumCRC32C")}
        parts.append({"PartNumber": number, **about})
    assert tarn.cli("branch", "create", f"{repository}/dev", "--from", "main").code == 0
    s3.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": parts})
    for command in (
        ("commit", f"{repository}/main", "-m", "big"),
        ("merge", f"{repository}/main", f"{repository}/dev"),
        ("bucket", "create", f"{repository}-view", "--to", f"{repository}/dev"),
    ):
        tarn.ok(*command)
    s3.copy_object(Bucket=repository, Key="dev/copy", CopySource=where)
    for place in (
        where,
        {**where, "Key": "dev@/big"},
        {"Bucket": f"{repository}-view", "Key": "big"},
    ):
        for number, body in enumerate(bodies, 1):
            got = s3.get_object(**place, PartNumber=number, ChecksumMode="ENABLED")
            assert (got["Body"].read(), got["PartsCount"]) == (body, len(bodies))
            assert got["ChecksumCRC32C"]
        told = s3.get_object_attributes(**place, ObjectAttributes=["ObjectParts"])["ObjectParts"]
        assert [each["Size"] for each in told["Parts"]] == [len(body) for body in bodies]
    copy = s3.head_object(Bucket=repository, Key="dev/copy", PartNumber=1)
    assert (copy["ContentLength"], "PartsCount" in copy) == (sum(map(len, bodies)), False)
    with pytest.raises(ClientError) as caught:
        s3.get_object(Bucket=repository, Key="dev/copy", PartNumber=2)
    assert code(caught) == (416, "InvalidPartNumber")


@pytest.mark.on_cassandra("three")
def test_an_aborted_upload_leaves_nothing(tarn: Any, s3: Any, repository: str) -> None:
    where = {"Bucket": repository, "Key": "main/big"}
    upload = s3.create_multipart_upload(**where)["UploadId"]
    s3.upload_part(**where, UploadId=upload, PartNumber=1, Body=MIB5)
    s3.abort_multipart_upload(**where, UploadId=upload)
    with pytest.raises(ClientError) as caught:
        s3.list_parts(**where, UploadId=upload)
    assert code(caught) == (404, "NoSuchUpload")
    assert not [path for path in Path(tarn.data).rglob("*") if upload in path.name]


def test_parts_may_be_copied(s3: Any, repository: str) -> None:
    s3.put_object(Bucket=repository, Key="main/source", Body=MIB5 + TAIL)
    where = {"Bucket": repository, "Key": "main/joined"}
    upload = s3.create_multipart_upload(**where)["UploadId"]
    parts = []
    spans = ((0, len(MIB5) - 1), (len(MIB5), len(MIB5) + len(TAIL) - 1))
    for number, (first, last) in enumerate(spans, 1):
        copied = s3.upload_part_copy(
            **where,
            UploadId=upload,
            PartNumber=number,
            CopySource={"Bucket": repository, "Key": "main/source"},
            CopySourceRange=f"bytes={first}-{last}",
        )
        parts.append({"PartNumber": number, "ETag": copied["CopyPartResult"]["ETag"]})
    s3.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": parts})
    assert s3.get_object(**where)["Body"].read() == MIB5 + TAIL


@pytest.mark.on_cassandra("three")
def test_a_bucket_shows_its_refs_and_then_its_objects(tarn: Any, s3: Any, repository: str) -> None:
    s3.put_object(Bucket=repository, Key="main/dir/a", Body=b"a")
    assert tarn.cli("commit", f"{repository}/main", "-m", "first").code == 0
    assert tarn.cli("branch", "create", f"{repository}/dev", "--from", "main").code == 0
    s3.put_object(Bucket=repository, Key="dev/b", Body=b"b")
    top = s3.list_objects_v2(Bucket=repository, Delimiter="/")
    assert [each["Prefix"] for each in top["CommonPrefixes"]] == ["dev/", "main/"]
    every = s3.list_objects_v2(Bucket=repository)["Contents"]
    assert [each["Key"] for each in every] == ["dev/b", "dev/dir/a", "main/dir/a"]
    old = s3.list_objects_v2(Bucket=repository, Prefix="dev@/")["Contents"]
    assert [each["Key"] for each in old] == ["dev@/dir/a"]


@pytest.mark.on_cassandra("three")
def test_many_keys_of_several_branches_are_deleted_at_once(
    tarn: Any, s3: Any, repository: str
) -> None:
    assert tarn.cli("branch", "create", f"{repository}/dev", "--from", "main").code == 0
    keys = [f"{branch}/{number}" for branch in ("main", "dev") for number in range(20)]
    for key in keys:
        s3.put_object(Bucket=repository, Key=key, Body=b"x")
    wanted = [{"Key": key} for key in [*keys, "main/missing", "nobranch/x"]]
    done = s3.delete_objects(Bucket=repository, Delete={"Objects": wanted})
    assert len(done["Deleted"]) == len(keys) + 1
    assert [(each["Key"], each["Code"]) for each in done["Errors"]] == [
        ("nobranch/x", "NoSuchBucket")
    ]
    assert "Contents" not in s3.list_objects_v2(Bucket=repository)


def test_a_presigned_url_needs_no_key(tarn: Any, s3: Any, repository: str) -> None:
    where = {"Bucket": repository, "Key": "main/ü a+b"}
    s3.put_object(**where, Body=b"text")
    # boto3 still presigns with SigV2 unless it is told otherwise.
    signer = tarn.s3(signature_version="s3v4")
    url = signer.generate_presigned_url("get_object", Params=where, ExpiresIn=60)
    signer.close()
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.read() == b"text"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url.replace("main", "dev"), timeout=10)
    assert caught.value.code == 403
    caught.value.close()


def test_an_upload_by_a_presigned_url_needs_a_length(tarn: Any, repository: str) -> None:
    signer = tarn.s3(signature_version="s3v4")
    where = {"Bucket": repository, "Key": "main/a"}
    url = urlsplit(signer.generate_presigned_url("put_object", Params=where, ExpiresIn=60))
    signer.close()
    for header, status in (("Content-Length", 200), ("X-Other", 411)):
        connection = http.client.HTTPConnection(url.netloc, timeout=10)
        connection.putrequest("PUT", f"{url.path}?{url.query}")
        connection.putheader(header, "0")
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == status
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert (b"<Code>MissingContentLength</Code>" in answer.read()) is (status == 411)
        connection.close()


def test_an_unsigned_request_is_denied(tarn: Any, repository: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{tarn.endpoint}/{repository}/main/a", timeout=10)
    assert caught.value.code == 403
    assert b"<Code>AccessDenied</Code>" in caught.value.read()
    caught.value.close()


@pytest.mark.parametrize(
    ("operation", "arguments", "expected"),
    [
        ("get_object", {"Key": "main/missing"}, (404, "NoSuchKey")),
        ("get_object", {"Key": "nobranch/a"}, (404, "NoSuchKey")),
        ("put_object", {"Key": "nobranch/a", "Body": b"x"}, (404, "NoSuchBucket")),
        ("put_object", {"Key": "nobranch/a", "Body": MIB5}, (404, "NoSuchBucket")),
        ("put_object", {"Key": "main@/a", "Body": b"x"}, (405, "MethodNotAllowed")),
        ("put_object", {"Key": "v1/a", "Body": b"x"}, (405, "MethodNotAllowed")),
        ("put_object", {"Key": "v1/a", "Body": MIB5}, (405, "MethodNotAllowed")),
        ("put_object", {"Key": "main/" + "k" * 1025, "Body": b""}, (400, "KeyTooLongError")),
        ("list_objects_v2", {"Prefix": "nobranch/"}, (404, "NoSuchKey")),
        ("delete_object", {"Key": "main/missing", "IfMatch": "*"}, (404, "NoSuchKey")),
        ("put_object", {"Key": "main/a", "ExpectedBucketOwner": "1" * 12}, (403, "AccessDenied")),
        ("get_object_acl", {"Key": "main/a"}, (404, "NoSuchKey")),
        ("put_object_acl", {"Key": "main/a", "ACL": "private"}, (404, "NoSuchKey")),
        ("put_bucket_acl", {"ACL": "public-read"}, (400, "AccessControlListNotSupported")),
        ("put_object", {"Key": "main/a", "StorageClass": "GLACIER"}, (400, "InvalidStorageClass")),
        ("list_object_versions", {"Prefix": "nobranch/"}, (404, "NoSuchKey")),
        ("get_bucket_policy", {}, (404, "NoSuchBucketPolicy")),
        ("get_object_retention", {"Key": "main/a"}, (501, "NotImplemented")),
        ("delete_bucket", {}, (501, "NotImplemented")),
    ],
)
def test_refusals_have_s3_s_codes(
    tarn: Any,
    s3: Any,
    repository: str,
    operation: str,
    arguments: dict[str, Any],
    expected: tuple[int, str],
) -> None:
    if arguments.get("Key", "").startswith("v1/"):
        assert tarn.cli("tag", "create", f"{repository}/v1", "--ref", "main").code == 0
    before = blocks(tarn)
    with pytest.raises(ClientError) as caught:
        getattr(s3, operation)(Bucket=repository, **arguments)
    assert code(caught) == expected
    assert blocks(tarn) == before


def test_an_acl_that_says_what_is_so_is_accepted(s3: Any, repository: str) -> None:
    s3.put_object(Bucket=repository, Key="main/a", Body=b"x", ACL="private")
    named = {"Bucket": repository, "Key": "main/a"}
    found = s3.get_object_acl(**named)
    (grant,) = found["Grants"]
    assert (grant["Grantee"]["ID"], grant["Permission"]) == (found["Owner"]["ID"], "FULL_CONTROL")
    policy = {"Owner": found["Owner"], "Grants": found["Grants"]}
    s3.put_object_acl(**named, AccessControlPolicy=policy)
    assert s3.get_bucket_acl(Bucket=repository)["Grants"] == [grant]
    s3.put_bucket_acl(Bucket=repository, AccessControlPolicy=policy)
    with pytest.raises(ClientError) as caught:
        s3.put_object_acl(**named, AccessControlPolicy={**policy, "Grants": [grant] * 2})
    assert code(caught) == (400, "AccessControlListNotSupported")


def test_a_repository_is_emptied_by_its_versions(s3: Any, repository: str) -> None:
    keys = [f"main/{number:03}/{name}" for number in range(40) for name in ("a", "b c+ü")]
    for key in keys:
        s3.put_object(Bucket=repository, Key=key, Body=b"x")
    paginator = s3.get_paginator("list_object_versions")

    def pages(**more: Any) -> list[dict[str, Any]]:
        named = {"Bucket": repository, "PaginationConfig": {"PageSize": 7}}
        return list(paginator.paginate(**named, Prefix="main/", **more))

    rolled = pages(Delimiter="/")
    prefixes = [row["Prefix"] for page in rolled for row in page["CommonPrefixes"]]
    assert prefixes == [f"main/{number:03}/" for number in range(40)]
    found = pages()
    assert [row["Key"] for page in found for row in page["Versions"]] == keys
    for page in found:
        objects = [{name: row[name] for name in ("Key", "VersionId")} for row in page["Versions"]]
        assert "Errors" not in s3.delete_objects(Bucket=repository, Delete={"Objects": objects})
    assert "Versions" not in s3.list_object_versions(Bucket=repository, Prefix="main/")

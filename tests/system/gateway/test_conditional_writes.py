"""If-None-Match and If-Match on a running Tarn, as table formats use them to commit."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

pytestmark = pytest.mark.every_form

MIB5 = bytes(range(256)) * (5 * 4096)
WRITERS = 8


def refusal(caught: pytest.ExceptionInfo[ClientError]) -> tuple[int, str]:
    response = caught.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


FAILED = (412, "PreconditionFailed")


@pytest.mark.on_cassandra("three")
def test_put_copy_and_completion_are_conditional(tarn: Any, s3: Any, repository: str) -> None:
    at = {"Bucket": repository, "Key": "main/a"}
    made = s3.put_object(**at, Body=b"1", IfNoneMatch="*")
    with pytest.raises(ClientError) as caught:
        s3.put_object(**at, Body=b"2", IfNoneMatch="*")
    assert refusal(caught) == FAILED
    with pytest.raises(ClientError) as caught:
        s3.put_object(**at, Body=b"2", IfMatch='"00000000000000000000000000000000"')
    assert refusal(caught) == FAILED
    with pytest.raises(ClientError) as caught:
        s3.put_object(Bucket=repository, Key="main/missing", Body=b"2", IfMatch=made["ETag"])
    assert refusal(caught) == (404, "NoSuchKey")
    assert tarn.cli("commit", f"{repository}/main", "-m", "committed counts, too").code == 0
    with pytest.raises(ClientError) as caught:
        s3.put_object(**at, Body=b"2", IfNoneMatch="*")
    assert refusal(caught) == FAILED
    s3.put_object(**at, Body=b"2", IfMatch=made["ETag"])
    assert s3.get_object(**at)["Body"].read() == b"2"

    upload = s3.create_multipart_upload(**at)["UploadId"]
    part = s3.upload_part(**at, UploadId=upload, PartNumber=1, Body=MIB5)
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    whole = {**at, "UploadId": upload, "MultipartUpload": parts}
    with pytest.raises(ClientError) as caught:
        s3.complete_multipart_upload(**whole, IfNoneMatch="*")
    assert refusal(caught) == FAILED
    s3.delete_object(**at)
    first = s3.complete_multipart_upload(**whole, IfNoneMatch="*")
    again = s3.complete_multipart_upload(**whole, IfNoneMatch="*")
    assert again["ETag"] == first["ETag"]

    etag = s3.head_object(**at)["ETag"]
    copy = {"CopySource": at, "Bucket": repository, "Key": "main/b"}
    with pytest.raises(ClientError) as caught:
        s3.copy_object(**copy, CopySourceIfNoneMatch=etag)
    assert refusal(caught) == FAILED
    s3.copy_object(**copy, CopySourceIfMatch=etag, IfNoneMatch="*")
    with pytest.raises(ClientError) as caught:
        s3.copy_object(**copy, IfNoneMatch="*")
    assert refusal(caught) == FAILED


@pytest.mark.on_cassandra("three")
def test_deletes_are_conditional(tarn: Any, s3: Any, repository: str) -> None:
    at = {"Bucket": repository, "Key": "main/a"}
    etag = s3.put_object(**at, Body=b"12345")["ETag"]
    assert tarn.cli("commit", f"{repository}/main", "-m", "committed counts, too").code == 0
    for wrong in ({"IfMatch": '"00000000000000000000000000000000"'}, {"IfMatchSize": 4}):
        with pytest.raises(ClientError) as caught:
            s3.delete_object(**at, **wrong)
        assert refusal(caught) == FAILED
    s3.delete_object(**at, IfMatch=etag, IfMatchSize=5)
    with pytest.raises(ClientError) as caught:
        s3.delete_object(**at, IfMatch=etag)
    assert refusal(caught) == (404, "NoSuchKey")
    s3.put_object(**at, Body=b"12345")
    objects = [{"Key": "main/a", "ETag": etag}, {"Key": "main/missing", "ETag": etag}]
    answer = s3.delete_objects(Bucket=repository, Delete={"Objects": objects})
    assert [each["Key"] for each in answer["Deleted"]] == ["main/a"]
    assert [each["Code"] for each in answer["Errors"]] == ["NoSuchKey"]


@pytest.mark.on_cassandra("three")
def test_one_of_several_concurrent_writers_creates_each_key(tarn: Any, repository: str) -> None:
    """Writes the log of a table format, one file for each version, through all workers, with commits between."""
    clients = [tarn.s3(retries={"total_max_attempts": 1}) for _ in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        for version in range(6):
            key = f"main/_delta_log/{version:020d}.json"

            def create(writer: int, key: str = key) -> int:
                body = f"writer {writer}".encode()
                try:
                    clients[writer].put_object(
                        Bucket=repository, Key=key, Body=body, IfNoneMatch="*"
                    )
                except ClientError as error:
                    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
                return 200

            answers = list(pool.map(create, range(WRITERS)))
            assert answers.count(200) == 1, answers
            assert set(answers) <= {200, 412, 503}
            winner = clients[0].get_object(Bucket=repository, Key=key)["Body"].read()
            assert winner == f"writer {answers.index(200)}".encode()
            if version % 3 == 2:
                assert tarn.cli("commit", f"{repository}/main", "-m", key).code == 0
    for client in clients:
        client.close()


def test_a_repeated_attempt_gets_the_first_answer(tarn: Any, s3: Any, repository: str) -> None:
    """boto3 sends one `amz-sdk-invocation-id` for all attempts of a call; here we choose it."""
    chosen = "0f0e0d0c-0b0a-0908-0706-050403020100"

    def choose(params: Any, **_: Any) -> None:
        params["context"].setdefault("retries", {})["invocation-id"] = chosen

    s3.meta.events.register("before-call.s3.PutObject", choose)
    at = {"Bucket": repository, "Key": "main/a"}
    first = s3.put_object(**at, Body=b"1", IfNoneMatch="*")
    assert s3.put_object(**at, Body=b"1", IfNoneMatch="*")["ETag"] == first["ETag"]
    with pytest.raises(ClientError) as caught:
        s3.put_object(**at, Body=b"2", IfNoneMatch="*")
    assert refusal(caught) == FAILED


def test_tags_never_bring_an_older_object_back(tarn: Any, s3: Any, repository: str) -> None:
    """A PUT of the same bytes has the same ETag, so other metadata tells the versions apart."""
    at = {"Bucket": repository, "Key": "main/a"}
    s3.put_object(**at, Body=b"x", Metadata={"version": "-1"})
    is_over = threading.Event()

    def tag(name: str) -> int:
        client, count = tarn.s3(), 0
        while not is_over.is_set():
            try:
                client.put_object_tagging(
                    **at, Tagging={"TagSet": [{"Key": name, "Value": str(count)}]}
                )
                count += 1
            except ClientError as error:
                if error.response["Error"]["Code"] != "OperationAborted":
                    raise
        client.close()
        return count

    with ThreadPoolExecutor(2) as pool:
        tagging = [pool.submit(tag, name) for name in "ab"]
        try:
            for version in range(40):
                s3.put_object(**at, Body=b"x", Metadata={"version": str(version)})
                assert s3.head_object(**at)["Metadata"] == {"version": str(version)}
        finally:
            is_over.set()
        assert all(each.result() for each in tagging)
    assert s3.head_object(**at)["Metadata"] == {"version": "39"}

"""Several clients send the completion of one multipart upload concurrently, through all gateways.

On Cassandra only the form with several gateways: two workers on one node.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

CLIENTS = 8
ROUNDS = 4
MIB5 = bytes(range(256)) * (5 * 4096)


@pytest.mark.on_cassandra("one")
def test_completions_at_once_make_one_object_and_undo_no_newer_one(
    tarn: Any, repository: str
) -> None:
    """All get the same answer; a newer object stays, however often the completion is repeated."""
    clients = [tarn.s3(retries={"total_max_attempts": 1}) for _ in range(CLIENTS)]
    s3 = clients[0]
    with ThreadPoolExecutor(CLIENTS) as pool:
        for number in range(ROUNDS):
            at = {"Bucket": repository, "Key": f"main/object-{number}"}
            upload = s3.create_multipart_upload(**at)["UploadId"]
            part = s3.upload_part(**at, UploadId=upload, PartNumber=1, Body=MIB5)
            parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
            whole = {**at, "UploadId": upload, "MultipartUpload": parts}

            def complete(client: Any, whole: dict[str, Any] = whole) -> tuple[int, str]:
                try:
                    made = client.complete_multipart_upload(**whole)
                except ClientError as error:
                    return int(error.response["ResponseMetadata"]["HTTPStatusCode"]), ""
                return 200, made["ETag"]

            answers = [*pool.map(complete, clients)]
            done = {etag for status, etag in answers if status == 200}
            assert len(done) == 1, answers
            assert {status for status, _ in answers} <= {200, 503}, (
                "the gateway is busy, or the upload is complete"
            )
            assert s3.head_object(**at)["ETag"] in done
            s3.put_object(**at, Body=b"newer")
            assert complete(s3) == (200, *done)
            assert s3.get_object(**at)["Body"].read() == b"newer"
            tarn.ok("commit", f"{repository}/main", "-m", f"round {number}")
            assert complete(clients[1]) == (200, *done)
            assert s3.get_object(**at)["Body"].read() == b"newer"
    for client in clients:
        client.close()

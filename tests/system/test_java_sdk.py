"""The AWS SDK for Java 2 over http: a round trip, signed chunks, with and without trailers, checksums in headers,
conditions.

One Java runs the SDK with the jars that Spark uses, and this process calls it (Py4J, a part of PySpark).
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError
from running_tarn import Place, RunningTarn

ROOT = Path(__file__).parents[2]
PYSPARK_JARS = Path(pyspark.__file__).parent / "jars"
OF_PYSPARK = ("http*", "slf4j-api*", "jcl-over-slf4j*", "commons-codec*", "netty-*")
"""What the SDK needs besides its own jars."""
BODY = "hello\n" * 100
CRC32 = base64.b64encode(zlib.crc32(BODY.encode()).to_bytes(4, "big")).decode()
SHA256 = base64.b64encode(hashlib.sha256(BODY.encode()).digest()).decode()

pytestmark = pytest.mark.in_form("single")


def told(tool: str) -> str:
    command = [str(ROOT / "tools" / tool)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """The package `software.amazon.awssdk`, in a Java that ends with this process."""
    jars = Path(told("jars-dir"))
    assert (jars / "complete").exists(), "no jars for Spark: run `tools/setup jars`"
    paths = [*(jars / "s3").glob("*.jar")]
    for pattern in OF_PYSPARK:
        paths += PYSPARK_JARS.glob(f"{pattern}.jar")
    (py4j,) = PYSPARK_JARS.glob("py4j-*.jar")
    port, token = launch_gateway(
        jarpath=str(py4j),
        classpath=":".join(map(str, paths)),
        javaopts=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"],
        java_path=f"{told('java-home')}/bin/java",
        die_on_exit=True,
        enable_auth=True,
    )
    parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
    gateway = JavaGateway(gateway_parameters=parameters)
    yield gateway.jvm
    gateway.shutdown()


class Client:
    """The SDK's S3 client of a Tarn, and its short names."""

    def __init__(self, java: Any, tarn: RunningTarn, bucket: str) -> None:
        aws = java.software.amazon.awssdk
        self.java, self.tarn = java, tarn
        self.model, self.body = aws.services.s3.model, aws.core.sync.RequestBody
        self.bucket = bucket
        basic = aws.auth.credentials.AwsBasicCredentials
        self.keys = aws.auth.credentials.StaticCredentialsProvider.create(
            basic.create(tarn.access_key_id, tarn.secret_access_key)
        )
        self.s3 = (
            self.of_tarn(aws.services.s3.S3Client.builder())
            .forcePathStyle(True)
            .httpClientBuilder(aws.http.apache.ApacheHttpClient.builder())
            .build()
        )

    def of_tarn(self, builder: Any) -> Any:
        region = self.java.software.amazon.awssdk.regions.Region.US_EAST_1
        endpoint = self.java.java.net.URI.create(self.tarn.endpoint)
        return builder.region(region).endpointOverride(endpoint).credentialsProvider(self.keys)

    def request(self, name: str, key: str = "main/a") -> Any:
        return getattr(self.model, name).builder().bucket(self.bucket).key(key)

    def presigned(self, get: Any) -> str:
        """Returns a URL that does a GetObjectRequest."""
        s3 = self.java.software.amazon.awssdk.services.s3
        settings = s3.S3Configuration.builder().pathStyleAccessEnabled(True).build()
        builder = self.of_tarn(s3.presigner.S3Presigner.builder())
        presigner = builder.serviceConfiguration(settings).build()
        wanted = s3.presigner.model.GetObjectPresignRequest.builder().getObjectRequest(get)
        wanted = wanted.signatureDuration(self.java.java.time.Duration.ofMinutes(1)).build()
        url = str(presigner.presignGetObject(wanted).url().toString())
        presigner.close()
        return url

    def put(self, request: Any) -> Any:
        return self.s3.putObject(request.build(), self.body.fromString(BODY))

    def read(self) -> str:
        return str(
            self.s3.getObjectAsBytes(self.request("GetObjectRequest").build()).asUtf8String()
        )


@pytest.fixture
def client(java: Any, tarn: RunningTarn, repository: str) -> Iterator[Client]:
    made = Client(java, tarn, repository)
    yield made
    made.s3.close()


def refused(call: Any, *arguments: Any) -> int:
    with pytest.raises(Py4JJavaError) as caught:
        call(*arguments)
    return int(caught.value.java_exception.statusCode())


@pytest.mark.parametrize("through", ["view", "repository"])
def test_round_trip(java: Any, tarn: RunningTarn, repository: str, through: str) -> None:
    place = tarn.new_bucket() if through == "view" else Place(repository, "main/")
    client = Client(java, tarn, place.bucket)
    s3, request, builder = client.s3, client.request, client.model
    key, copied, large = (f"{place.root}{name}" for name in ("a b/ü", "copy", "large"))
    client.put(request("PutObjectRequest", key))
    copy = builder.CopyObjectRequest.builder().sourceBucket(place.bucket).sourceKey(key)
    s3.copyObject(copy.destinationBucket(place.bucket).destinationKey(copied).build())
    upload = request("CreateMultipartUploadRequest", large).build()
    upload_id = s3.createMultipartUpload(upload).uploadId()
    parts = []
    for number, text in enumerate(("x" * (5 << 20), BODY), 1):
        part = request("UploadPartRequest", large).uploadId(upload_id).partNumber(number).build()
        etag = s3.uploadPart(part, client.body.fromString(text)).eTag()
        parts.append(builder.CompletedPart.builder().partNumber(number).eTag(etag).build())
    listed = builder.CompletedMultipartUpload.builder().parts(parts).build()
    whole = request("CompleteMultipartUploadRequest", large).uploadId(upload_id)
    s3.completeMultipartUpload(whole.multipartUpload(listed).build())
    listing = builder.ListObjectsV2Request.builder().bucket(place.bucket).prefix(place.root)
    found = s3.listObjectsV2(listing.build()).contents()
    assert [(each.key(), each.size()) for each in found] == [
        (key, len(BODY)),
        (copied, len(BODY)),
        (large, (5 << 20) + len(BODY)),
    ]
    middle = request("GetObjectRequest", large).range(f"bytes={(5 << 20) - 1}-{(5 << 20) + 4}")
    assert s3.getObjectAsBytes(middle.build()).asUtf8String() == "xhello"
    get = request("GetObjectRequest", copied).build()
    with urllib.request.urlopen(client.presigned(get), timeout=30) as answer:
        assert answer.read() == BODY.encode()
    for name in (key, copied, large):
        s3.deleteObject(request("DeleteObjectRequest", name).build())
    assert s3.listObjectsV2(listing.build()).contents().size() == 0
    with pytest.raises(Py4JJavaError) as caught:
        s3.getObjectAsBytes(get)
    error = caught.value.java_exception
    assert error.getClass().getSimpleName() == "NoSuchKeyException"
    assert error.awsErrorDetails().errorCode() == "NoSuchKey"
    s3.close()


def test_every_form_of_a_checksum_is_accepted_and_verified(client: Client) -> None:
    """With algorithm and checksum the SDK announces a trailer, and sends signed chunks without one."""
    algorithm = client.model.ChecksumAlgorithm
    client.put(client.request("PutObjectRequest"))
    in_a_trailer = client.request("PutObjectRequest").checksumAlgorithm(algorithm.CRC32)
    assert client.put(in_a_trailer).checksumCRC32() == CRC32
    in_a_header = client.request("PutObjectRequest").checksumSHA256(SHA256)
    assert client.put(in_a_header).checksumSHA256() == SHA256
    announced_too = in_a_header.checksumAlgorithm(algorithm.SHA256)
    assert client.put(announced_too).checksumSHA256() == SHA256
    assert client.read() == BODY
    wrong = base64.b64encode(bytes(32)).decode()
    assert refused(client.put, announced_too.checksumSHA256(wrong)) == 400
    assert client.read() == BODY


def test_parts_with_checksums_make_an_object(client: Client) -> None:
    sha256 = client.model.ChecksumAlgorithm.SHA256
    begin = client.request("CreateMultipartUploadRequest").checksumAlgorithm(sha256)
    upload_id = client.s3.createMultipartUpload(begin.build()).uploadId()
    part = client.request("UploadPartRequest").uploadId(upload_id).partNumber(1)
    part = part.checksumAlgorithm(sha256).checksumSHA256(SHA256).build()
    sent = client.s3.uploadPart(part, client.body.fromString(BODY))
    assert sent.checksumSHA256() == SHA256
    listed = client.model.CompletedPart.builder().partNumber(1).eTag(sent.eTag())
    listed = client.model.CompletedMultipartUpload.builder().parts(
        [listed.checksumSHA256(SHA256).build()]
    )
    complete = client.request("CompleteMultipartUploadRequest").uploadId(upload_id)
    client.s3.completeMultipartUpload(complete.multipartUpload(listed.build()).build())
    assert client.read() == BODY


def test_headers_that_change_a_request_are_not_ignored(client: Client) -> None:
    client.put(client.request("PutObjectRequest"))
    delete = client.request("DeleteObjectRequest")
    assert refused(client.s3.deleteObject, delete.ifMatchSize(1).build()) == 412
    other = client.request("DeleteObjectRequest").expectedBucketOwner("123456789012")
    assert refused(client.s3.deleteObject, other.build()) == 403
    assert client.read() == BODY

"""The last boto3 that sends no checksum by itself: `python old_boto3_round_trip.py ENDPOINT BUCKET ROOT`."""

import sys
from io import BytesIO
from urllib.request import urlopen

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

endpoint, bucket, root = sys.argv[1:]
v4 = Config(signature_version="s3v4")  # also of presigned URLs
s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=v4)
large = bytes(range(256)) * (12 * 4096)
parts = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)

s3.put_object(Bucket=bucket, Key=f"{root}a b/ü", Body=b"small", Metadata={"job": "nightly"})
s3.upload_fileobj(BytesIO(large), bucket, f"{root}large", Config=parts)
assert s3.head_object(Bucket=bucket, Key=f"{root}a b/ü")["Metadata"] == {"job": "nightly"}
back = BytesIO()
s3.download_fileobj(bucket, f"{root}large", back, Config=parts)
assert back.getvalue() == large
part = s3.get_object(Bucket=bucket, Key=f"{root}large", Range="bytes=255-256")
assert part["Body"].read() == b"\xff\x00"
s3.copy({"Bucket": bucket, "Key": f"{root}large"}, bucket, f"{root}copy", Config=parts)
url = s3.generate_presigned_url("get_object", {"Bucket": bucket, "Key": f"{root}a b/ü"}, 60)
with urlopen(url, timeout=30) as answer:
    assert answer.read() == b"small"
listed = s3.list_objects_v2(Bucket=bucket, Prefix=root)["Contents"]
assert [each["Key"] for each in listed] == [f"{root}{name}" for name in ("a b/ü", "copy", "large")]
wanted = [{"Key": each["Key"]} for each in listed]
assert len(s3.delete_objects(Bucket=bucket, Delete={"Objects": wanted})["Deleted"]) == 3
code = ""
try:
    s3.get_object(Bucket=bucket, Key=f"{root}large")
except ClientError as error:
    code = error.response["Error"]["Code"]
assert code == "NoSuchKey", code

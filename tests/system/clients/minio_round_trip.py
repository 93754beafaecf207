"""minio-py: `python minio_round_trip.py ENDPOINT BUCKET ROOT`."""

import io
import os
import sys
from datetime import timedelta
from urllib.request import urlopen

from minio import Minio, S3Error
from minio.commonconfig import CopySource, Tags
from minio.deleteobjects import DeleteObject

endpoint, bucket, root = sys.argv[1:]
key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
lake = Minio(
    endpoint=endpoint.removeprefix("http://"),
    access_key=key,
    secret_key=secret,
    secure=False,
    region="us-east-1",
)
tags = Tags.new_object_tags()
tags.update({"team": "a b", "größe": "1/2"})
large = bytes(range(256)) * (12 * 4096)

assert lake.bucket_exists(bucket_name=bucket)
lake.put_object(
    bucket_name=bucket, object_name=f"{root}a/large", data=io.BytesIO(large), length=-1,
    part_size=5 << 20, metadata={"job": "nightly"}, tags=tags,
)  # fmt: skip
stat = lake.stat_object(bucket_name=bucket, object_name=f"{root}a/large")
assert stat.size == len(large), stat.size
assert stat.metadata["x-amz-meta-job"] == "nightly"
named = {"bucket_name": bucket, "object_name": f"{root}a/large"}
assert lake.get_object_tags(**named) == tags
lake.delete_object_tags(**named)
assert lake.get_object_tags(**named) is None
lake.set_object_tags(**named, tags=tags)
got = lake.get_object(bucket_name=bucket, object_name=f"{root}a/large", offset=255, length=2)
assert got.read() == b"\xff\x00"
got.close()
lake.copy_object(
    bucket_name=bucket,
    object_name=f"{root}b/copy",
    source=CopySource(bucket_name=bucket, object_name=f"{root}a/large"),
)
assert lake.get_object_tags(bucket_name=bucket, object_name=f"{root}b/copy") == tags
listed = lake.list_objects(bucket_name=bucket, prefix=root, recursive=True)
assert [each.object_name for each in listed] == [f"{root}a/large", f"{root}b/copy"]
folders = lake.list_objects(bucket_name=bucket, prefix=root)
assert [each.object_name for each in folders] == [f"{root}a/", f"{root}b/"]
versions = lake.list_objects(bucket_name=bucket, prefix=f"{root}b/", include_version=True)
assert [(each.version_id, each.is_latest) for each in versions] == [("null", "true")]
url = lake.presigned_get_object(
    bucket_name=bucket, object_name=f"{root}b/copy", expires=timedelta(minutes=5)
)
with urlopen(url, timeout=30) as answer:
    assert answer.read() == large
errors = lake.remove_objects(
    bucket_name=bucket,
    delete_object_list=[DeleteObject(name=f"{root}a/large"), DeleteObject(name=f"{root}b/copy")],
)
assert list(errors) == []
code = ""
try:
    lake.stat_object(bucket_name=bucket, object_name=f"{root}a/large")
except S3Error as error:
    code = error.code
assert code == "NoSuchKey", code

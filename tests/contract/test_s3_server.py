"""The S3 server of the tests, where rclone alone would break what S3 promises."""

from __future__ import annotations

from pathlib import Path

import boto3
from botocore.config import Config
from tests.support.servers.s3_server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, S3Server


def test_a_folder_outlives_its_last_object_and_shows_nothing(tmp_path: Path) -> None:
    """rclone loses objects that are written while it removes their folder."""
    with S3Server(tmp_path) as server:
        s3 = boto3.session.Session().client(
            "s3",
            endpoint_url=server.endpoint,
            aws_access_key_id=ACCESS_KEY_ID,
            aws_secret_access_key=SECRET_ACCESS_KEY,
            region_name=REGION,
            config=Config(s3={"addressing_style": "path"}),
        )
        s3.put_object(Bucket="tarn", Key="lake/data/a", Body=b"a")
        listed = s3.list_objects_v2(Bucket="tarn")
        assert [each["Key"] for each in listed["Contents"]] == ["lake/data/a"]
        s3.delete_object(Bucket="tarn", Key="lake/data/a")
        assert server.file("tarn", "lake/data").is_dir()
        assert "Contents" not in s3.list_objects_v2(Bucket="tarn")
        folders = s3.list_objects_v2(Bucket="tarn", Prefix="lake/data/", Delimiter="/")
        assert "CommonPrefixes" not in folders
        s3.close()

"""Browsers and running services: the page about them, CORS rules, and uploads by forms."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from browser import send
from pages_as_written import own_name, play, script_of
from running_tarn import RunningTarn

PAGE = Path(__file__).parents[2] / "docs" / "user" / "browsers.md"


def test_the_page_about_browsers_works_as_written(tarn: RunningTarn, tmp_path: Path) -> None:
    script = script_of(PAGE.read_text(encoding="utf-8"))
    name = own_name("web", tmp_path)
    script = re.sub(r"\bweb\b", name, script)
    done = play(tarn, script, tmp_path)
    assert "https://app.example.com" in done.stdout


@pytest.mark.every_form
def test_a_page_uploads_a_form_and_reads_it(tarn: RunningTarn, repository: str, s3: Any) -> None:
    """In each form of Tarn: gateways read rules as a service, without a user."""
    view = f"{repository[:50]}-web"
    tarn.ok("bucket", "create", view, "--to", f"{repository}/main")
    rule = {"AllowedOrigins": ["https://*.example"], "AllowedMethods": ["POST", "GET"]}
    for bucket, key in ((repository, "main/up/"), (view, "up/")):
        with pytest.raises(ClientError, match="NoSuchCORSConfiguration"):
            s3.get_bucket_cors(Bucket=bucket)
        s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
        assert s3.get_bucket_cors(Bucket=bucket)["CORSRules"] == [rule]
        page = {"Origin": "https://app.example"}
        status, headers, _ = send(
            tarn, "OPTIONS", f"/{bucket}", {**page, "Access-Control-Request-Method": "POST"}
        )
        assert (status, headers["access-control-allow-origin"]) == (200, "https://app.example")
        file = b"x" * 3_000_000 + b"\r\n--limi"
        signed = tarn.s3(signature_version="s3v4").generate_presigned_post(
            bucket, key + "${filename}", Conditions=[["content-length-range", 1, len(file)]]
        )
        for content, expected in ((file, 204), (file + b"+", 400), (b"", 400)):
            status, headers, body = send(tarn, "POST", f"/{bucket}", page, signed, content)
            assert (status, headers["access-control-allow-origin"]) == (
                expected,
                "https://app.example",
            ), body
        stored = s3.get_object(Bucket=bucket, Key=f"{key}a file.bin")["Body"].read()
        assert stored == file
        s3.delete_bucket_cors(Bucket=bucket)

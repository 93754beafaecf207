"""Browsers and running services: the page about them, CORS rules, and uploads by forms."""

from __future__ import annotations

import http.client
import re
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError
from running_tarn import BIN, RunningTarn, clean_environment

PAGE = Path(__file__).parents[2] / "docs" / "user" / "browsers.md"


def test_the_page_about_browsers_works_as_written(tarn: RunningTarn, tmp_path: Path) -> None:
    script = "".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    script = script.replace("$PWD/.venv/bin", str(BIN))
    name = f"web-{tmp_path.name[-20:].replace('_', '-')}".rstrip("-")
    script = re.sub(r"\bweb\b", name, script)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=clean_environment(TARN_SETTINGS=str(tarn.settings)),
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
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
        status, headers, _ = _send(
            tarn, "OPTIONS", f"/{bucket}", {**page, "Access-Control-Request-Method": "POST"}
        )
        assert (status, headers["access-control-allow-origin"]) == (200, "https://app.example")
        file = b"x" * 3_000_000 + b"\r\n--limi"
        signed = tarn.s3(signature_version="s3v4").generate_presigned_post(
            bucket, key + "${filename}", Conditions=[["content-length-range", 1, len(file)]]
        )
        for content, expected in ((file, 204), (file + b"+", 400), (b"", 400)):
            status, headers, body = _send(tarn, "POST", f"/{bucket}", page, signed, content)
            assert (status, headers["access-control-allow-origin"]) == (
                expected,
                "https://app.example",
            ), body
        stored = s3.get_object(Bucket=bucket, Key=f"{key}a file.bin")["Body"].read()
        assert stored == file
        s3.delete_bucket_cors(Bucket=bucket)


def _send(
    tarn: RunningTarn,
    method: str,
    path: str,
    headers: dict[str, str],
    signed: Mapping[str, Any] | None = None,
    file: bytes = b"",
) -> tuple[int, dict[str, str], bytes]:
    """Sends a request as a browser does: without a signature, perhaps with a form."""
    body = None
    if signed is not None:
        start = '--limit\r\nContent-Disposition: form-data; name="'
        fields = [f'{start}{name}"\r\n\r\n{v}\r\n' for name, v in signed["fields"].items()]
        head = "".join(fields) + f'{start}file"; filename="a file.bin"\r\n\r\n'
        body = head.encode() + file + b"\r\n--limit--\r\n"
        headers = {**headers, "Content-Type": "multipart/form-data; boundary=limit"}
    connection = http.client.HTTPConnection(urlsplit(tarn.endpoint).netloc, timeout=60)
    with closing(connection):
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read()

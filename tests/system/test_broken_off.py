"""Clients that break off a GET leave only the lines of their requests in the log."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from running_tarn import RunningTarn, launch, set_up, stop, wait_until_up
from tests.support.servers.s3_server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, S3Server
from tests.support.unhandled import check_log

pytestmark = pytest.mark.timeout(300)

MIB = 1 << 20
SIZES = (1_000, 200_000, 48 * MIB)
"""Sizes of bodies: sent in one write, sent in several, and larger than all buffers together."""
ROUNDS = 60
BLOCKS_IN_S3 = """\
blockstore:
  type: s3
  default_namespace_prefix: s3://tarn/lakes
  s3:
    endpoint: {endpoint}
    force_path_style: true
    credentials:
      access_key_id: {key}
      access_secret_key: {secret}
"""
TLS = """\
gateways:
  s3:
    tls:
      cert: {folder}/cert.pem
      key: {folder}/key.pem
"""


def make_certificate(folder: Path) -> None:
    """A key and its self-signed certificate."""
    subject = ("-subj", "/CN=tarn test", "-addext", "subjectAltName=IP:127.0.0.1", "-nodes")
    files = ("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)


def start(folder: Path, config: str) -> RunningTarn:
    (folder / "tarn.yaml").write_text(config)
    options = ("--config", str(folder / "tarn.yaml"), "--port", "0", "--rpc-port", "0")
    data = folder / "data"
    supervisor = launch(data, *options, "--workers", "1")
    tarn = RunningTarn("single", data, folder / "credentials", supervisor)
    try:
        wait_until_up(tarn)
        set_up(tarn)
    except BaseException:
        stop(tarn)
        raise
    return tarn


def break_off(url: str, received: int, certificate: Path) -> None:
    """Requests an object, reads some bytes of the answer, and resets the connection as a killed client does."""
    where = urlsplit(url)
    assert where.port is not None
    plain = socket.create_connection(("127.0.0.1", where.port), timeout=30)
    connection: socket.socket = plain
    if where.scheme == "https":
        context = ssl.create_default_context(cafile=certificate)
        connection = context.wrap_socket(plain, server_hostname="127.0.0.1")
    with connection:
        head = f"GET {where.path}?{where.query} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n"
        connection.sendall(head.encode())
        left = received
        while left > 0 and (piece := connection.recv(min(left, 65_536))):
            assert left < received or piece.startswith(b"HTTP/1.1 200 ")
            left -= len(piece)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("blocks", ["local", "s3"])
@pytest.mark.parametrize("wire", ["plain", "tls"])
def test_a_get_that_is_broken_off_leaves_no_defect_in_the_log(
    blocks: str, wire: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "cert.pem"))
    make_certificate(tmp_path)
    config = TLS.format(folder=tmp_path) if wire == "tls" else ""
    with ExitStack() as stack:
        if blocks == "s3":
            (tmp_path / "s3").mkdir()
            server = stack.enter_context(S3Server(tmp_path / "s3"))
            config += BLOCKS_IN_S3.format(
                endpoint=server.endpoint, key=ACCESS_KEY_ID, secret=SECRET_ACCESS_KEY
            )
        tarn = start(tmp_path, config)
        try:
            lake = tarn.new_repository()
            s3 = tarn.s3(signature_version="s3v4")
            urls = []
            for size in SIZES:
                place = {"Bucket": lake, "Key": f"main/{size}"}
                s3.put_object(**place, Body=bytes(size))
                urls.append(s3.generate_presigned_url("get_object", Params=place))
            for number in range(ROUNDS):
                for url, size in zip(urls, SIZES, strict=True):
                    received = min(number % 4 * 150_000, size)
                    break_off(url, received, tmp_path / "cert.pem")
            for size in SIZES:  # it still serves
                found = s3.get_object(Bucket=lake, Key=f"main/{size}")["Body"].read()
                assert len(found) == size
            s3.close()
        finally:
            stop(tarn)
    # Some of the clients that read nothing disconnect before their request is read.
    assert tarn.log.read_text().count("GET") >= len(SIZES) * ROUNDS // 2
    check_log(tarn.log)

"""A real lakeFS server, to prove that tests of its clients expect what it does.

`tools/setup lakefs` builds it. It runs on a free port of the loopback, with its local key-value store, over an S3
server of the tests, so that it offers presigned links. It sends no statistics and looks for no newer version.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rest_server import RestServer
from running_tarn import clean_environment
from slowness import scaled
from tests.support.servers import s3_server

__all__ = ["LAKEFS", "beside", "running_lakefs"]

LAKEFS: Final = (
    Path(os.environ.get("TARN_CACHE") or Path.home() / ".cache" / "tarn") / "lakefs" / "lakefs"
)
_ACCESS_KEY_ID: Final = "AKIAJTESTSOFTHEPEERQ"
_SECRET_ACCESS_KEY: Final = "the-secret-of-the-peer-of-the-tests-0000"
_START_SECONDS: Final = scaled(60)
_STOP_SECONDS: Final = scaled(30)


def beside(store: s3_server.S3Server) -> str:
    """Returns the address of an S3 server under another name than that of the server which sends clients there.

    lakectl hands its header Authorization on to other ports of one name, and S3 refuses such a request.
    """
    return store.endpoint.replace("127.0.0.1", "localhost")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_lakefs(folder: Path) -> Iterator[RestServer]:
    """Starts lakeFS in a folder, creates its admin, and stops it at the end."""
    (folder / "s3").mkdir()
    port = _free_port()
    with s3_server.S3Server(folder / "s3", ("lakefs",)) as store:
        settings = {
            "LISTEN_ADDRESS": f"127.0.0.1:{port}",
            "DATABASE_TYPE": "local",
            "DATABASE_LOCAL_PATH": str(folder / "kv"),
            "BLOCKSTORE_TYPE": "s3",
            "BLOCKSTORE_DEFAULT_NAMESPACE_PREFIX": "s3://lakefs",
            "BLOCKSTORE_S3_FORCE_PATH_STYLE": "true",
            "BLOCKSTORE_S3_ENDPOINT": beside(store),
            "BLOCKSTORE_S3_REGION": s3_server.REGION,
            "BLOCKSTORE_S3_DISCOVER_BUCKET_REGION": "false",
            "BLOCKSTORE_S3_CREDENTIALS_ACCESS_KEY_ID": s3_server.ACCESS_KEY_ID,
            "BLOCKSTORE_S3_CREDENTIALS_SECRET_ACCESS_KEY": s3_server.SECRET_ACCESS_KEY,
            "AUTH_ENCRYPT_SECRET_KEY": "a secret of the tests",
            "COMMITTED_LOCAL_CACHE_DIR": str(folder / "cache"),
            "STATS_ENABLED": "false",
            "SECURITY_CHECK_LATEST_VERSION": "false",
            "USAGE_REPORT_ENABLED": "false",
        }
        environment = clean_environment(
            HOME=str(folder), **{f"LAKEFS_{name}": value for name, value in settings.items()}
        )
        setup = [
            str(LAKEFS),
            "setup",
            "--user-name=admin",
            f"--access-key-id={_ACCESS_KEY_ID}",
            f"--secret-access-key={_SECRET_ACCESS_KEY}",
            "--no-check",
        ]
        subprocess.run(setup, env=environment, check=True, capture_output=True, timeout=60)
        with (folder / "lakefs.log").open("wb") as log:
            process = subprocess.Popen(
                [str(LAKEFS), "run"], env=environment, stdout=log, stderr=log
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, process)
            yield RestServer(
                "lakefs", url, _ACCESS_KEY_ID, _SECRET_ACCESS_KEY, bucket_endpoint=store.endpoint
            )
        finally:
            process.terminate()
            process.wait(_STOP_SECONDS)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{url}/api/v1/healthcheck", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            assert process.poll() is None, f"lakeFS ended with {process.returncode}"
            assert time.monotonic() < deadline, "lakeFS took too long to start"
            time.sleep(0.1)

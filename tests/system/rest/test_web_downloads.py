"""Downloads from the S3 endpoint by links that auth signs: a Tarn over a folder, whose endpoint browsers know."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

import pytest
from rest_server import RestServer
from running_tarn import RunningTarn, launch, set_up, stop, wait_until_up
from slowness import scaled
from web_browser import another_user, call, chromium, new_repository, sign_in, upload, watched

pytestmark = [pytest.mark.beyond_the_peer, pytest.mark.timeout(300)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestServer]:
    # The address of the S3 endpoint is known before it listens.
    with socket.socket() as free, socket.socket() as other:
        for each in (free, other):
            each.bind(("127.0.0.1", 0))
        port, api = (each.getsockname()[1] for each in (free, other))
    s3 = f"http://127.0.0.1:{port}"
    supervisor = launch(
        tmp_path / "data",
        *("--port", str(port), "--rpc-port", "0", "--workers", "1"),
        environment={"TARN_API_S3_URL": s3, "TARN_API_LISTEN_ADDRESS": f"127.0.0.1:{api}"},
    )
    tarn = RunningTarn("single", tmp_path / "data", tmp_path / "credentials", supervisor)
    try:
        wait_until_up(tarn)
        set_up(tarn)
        key, secret = tarn.access_key_id, tarn.secret_access_key
        yield RestServer("tarn", tarn.state()["api"], key, secret, s3)
    finally:
        stop(tarn)


def test_a_browser_downloads_from_the_s3_endpoint_what_its_user_may_read(
    server: RestServer,
) -> None:
    """Also a page of HTML with a hostile name is a file there; and a right that was lost counts for a link in hand."""
    name, content = "é & <b>#1?.html", b"<script>document.title = 'run'</script>"
    with chromium() as browser:
        with watched(browser.new_context()) as page:
            sign_in(page, server)
            page.goto(f"{server.url}/")
            new_repository(page, "lake")
            upload(page, name, content)
            page.get_by_role("link", name=name).click()
            here = page.url
            with page.expect_download() as download:
                page.get_by_role("link", name="Download").click()
            assert page.url == here
            assert download.value.url.startswith(f"{server.bucket_endpoint}/lake/main/")
            assert download.value.suggested_filename == "é & b#1.html"
            assert Path(download.value.path()).read_bytes() == content
        ben = another_user(server)
        with watched(browser.new_context()) as page:
            sign_in(page, ben)
            target = f"{server.url}/repositories/lake/download?ref=main&path={quote(name)}"
            answer = page.request.get(target, max_redirects=0)
            assert (answer.status, answer.headers["cache-control"]) == (303, "no-store")
            link = answer.headers["location"]
    with urlopen(link) as got:
        assert got.read() == content
        assert got.headers["Content-Type"] == "application/octet-stream"
        assert got.headers["Content-Disposition"].startswith("attachment;")
        assert "sandbox" in got.headers["Content-Security-Policy"]
    user = call(server, "tarn.auth.v1.UserService/ListUsers", {})["users"]
    [user_id] = [each["userId"] for each in user if each["userId"] != "admin"]
    roles = {"userId": user_id, "roles": []}
    call(server, "tarn.auth.v1.UserService/UpdateUserRoles", roles)
    deadline = time.monotonic() + scaled(30)
    while _status(link) != 403:
        assert time.monotonic() < deadline, "a lost role ends links within ten seconds"
        time.sleep(0.5)


def _status(link: str) -> int:
    connection = http.client.HTTPConnection(urlsplit(link).netloc, timeout=30)
    connection.request("GET", link.partition(urlsplit(link).netloc)[2])
    status: int = connection.getresponse().status
    connection.close()
    return status

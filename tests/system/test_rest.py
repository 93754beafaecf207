"""The REST endpoint of a running Tarn, in each of its forms."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from running_tarn import RunningTarn


class Rest:
    """A client without cleverness."""

    def __init__(self, tarn: RunningTarn, base: str) -> None:
        pair = f"{tarn.access_key_id}:{tarn.secret_access_key}".encode()
        self._authorization = "Basic " + base64.b64encode(pair).decode()
        self._base = base + "/api/v1"

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        return self.send(method, path, data)

    def send(self, method: str, path: str, data: bytes | None) -> tuple[int, Any]:
        request = urllib.request.Request(self._base + path, data, method=method)
        request.add_header("Authorization", self._authorization)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                status, content, kind = answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            status, content, kind = error.code, error.read(), error.headers
        is_json = kind.get("Content-Type", "").startswith("application/json")
        return status, json.loads(content) if is_json else content.decode()


@pytest.fixture
def rest(tarn: RunningTarn) -> Rest:
    return Rest(tarn, tarn.state()["api"])


@pytest.mark.every_form
def test_a_change_goes_from_a_branch_to_main(rest: Rest, s3: Any, repository: str) -> None:
    lake = f"/repositories/{repository}"
    assert rest.ask("GET", "/healthcheck")[0] == 204
    status, base = rest.ask("POST", f"{lake}/branches", {"name": "dev", "source": "main"})
    assert status == 201
    s3.put_object(Bucket=repository, Key="dev/raw/a", Body=b"1234")
    assert [
        (each["type"], each["path"], each["size_bytes"])
        for each in rest.ask("GET", f"{lake}/branches/dev/diff")[1]["results"]
    ] == [("added", "raw/a", 4)]
    status, commit = rest.ask("POST", f"{lake}/branches/dev/commits", {"message": "one"})
    assert (status, commit["parents"]) == (201, [base])
    status, merged = rest.ask("POST", f"{lake}/refs/dev/merge/main", {})
    assert status == 200
    assert rest.ask("GET", f"{lake}/branches/main")[1]["commit_id"] == merged["reference"]
    status, stat = rest.ask("GET", f"{lake}/refs/main/objects/stat?path=raw/a")
    assert (status, stat["checksum"]) == (200, "81dc9bdb52d04dc20036dbd8313ed055")
    assert rest.ask("POST", f"{lake}/refs/dev/merge/main", {})[0] == 400
    assert rest.ask("GET", f"{lake}/branches/none")[0] == 404


@pytest.mark.every_form
def test_bytes_go_in_and_out_by_both_endpoints(rest: Rest, s3: Any, repository: str) -> None:
    lake, body = f"/repositories/{repository}", "id,name\n" * 50_000
    status, stored = rest.send("POST", f"{lake}/branches/main/objects?path=a", body.encode())
    assert (status, stored["size_bytes"]) == (201, len(body))
    found = s3.get_object(Bucket=repository, Key="main/a")
    assert found["Body"].read() == body.encode()
    assert found["ETag"] == f'"{stored["checksum"]}"'
    status, copied = rest.ask(
        "POST", f"{lake}/branches/main/objects/copy?dest_path=b", {"src_path": "a"}
    )
    assert (status, copied["checksum"]) == (201, stored["checksum"])
    assert rest.ask("GET", f"{lake}/refs/main/objects?path=b") == (200, body)


@pytest.mark.every_form
def test_a_browser_signs_in_works_and_signs_out(tarn: RunningTarn, repository: str) -> None:
    """Its session is auth's, wherever auth runs; on the loopback without TLS its cookie is `tarn`."""
    base = tarn.state()["api"]
    host = base.removeprefix("http://")
    headers = {"Host": host, "Origin": f"http://{host}"}
    lake = f"/api/v1/repositories/{repository}"

    def ask(method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(base + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.headers

    pair = {
        "access_key_id": tarn.access_key_id,
        "secret_access_key": tarn.secret_access_key,
    }
    status, answer = ask("POST", "/api/v1/auth/login", pair)
    assert status == 200
    cookie, *attributes = answer["Set-Cookie"].split("; ")
    assert cookie.startswith("tarn=")
    assert attributes == ["Path=/", "HttpOnly", "SameSite=Lax"]
    headers["Cookie"] = cookie
    assert ask("POST", f"{lake}/branches", {"name": "web", "source": "main"})[0] == 201
    headers["Origin"] = "http://evil.example"
    assert ask("DELETE", f"{lake}/branches/web")[0] == 403
    assert ask("GET", f"{lake}/branches/web")[0] == 200
    headers["Origin"] = f"http://{host}"
    assert ask("DELETE", "/api/tarn/v1/session")[0] == 204
    assert ask("GET", f"{lake}/branches/web")[0] == 401

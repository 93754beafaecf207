"""What is asked of a running lakeFS, with the answers of lakeFS 1.84; `--peer` asks a real one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.lakefs.history import DumpIds
from tarn.lakefs.server import PeerServer

IDS = {"commits_meta_range_id": "c", "branches_meta_range_id": "b", "tags_meta_range_id": "t"}
ROOT = "/api/v1/repositories/shop"


class Answers(BaseHTTPRequestHandler):
    """Answers from a table; `seen` holds the requests."""

    table: dict[str, tuple[int, Any]]
    seen: list[str]

    def do_GET(self) -> None:
        self.seen.append(f"{self.command} {self.path} {self.headers.get('Authorization')}")
        status, body = self.table.get(f"{self.command} {self.path}", (404, {"message": "none"}))
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET  # noqa: N815 - the name that the library calls

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def answers() -> type[Answers]:
    return type("Own", (Answers,), {"table": {}, "seen": []})


@pytest.fixture
def peer(answers: type[Answers]) -> Iterator[PeerServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield PeerServer(f"http://127.0.0.1:{server.server_port}/api/v1/", "key", "secret", "shop")
        server.shutdown()
        thread.join()


async def no_time(_: float) -> None:
    return


async def test_a_running_lakefs_tells_what_its_bucket_does_not(
    peer: PeerServer, answers: type[Answers]
) -> None:
    running = {"id": "DR1", "done": False}
    answers.table = {
        f"GET {ROOT}": (200, {"storage_namespace": "s3://a/b", "default_branch": "trunk"}),
        f"GET {ROOT}/settings/branch_protection": (200, [{"pattern": "main"}]),
        f"GET {ROOT}/branches/main/diff?amount=1": (200, {"results": [{"path": "a"}]}),
        f"GET {ROOT}/branches/dev/diff?amount=1": (200, {"results": []}),
        f"POST {ROOT}/dump": (202, {"id": "DR1"}),
        f"GET {ROOT}/dump?task_id=DR1": (200, running),
    }

    async def later(_: float) -> None:
        running.update(done=True, refs=IDS)

    assert peer.place() == ("s3://a/b", "trunk")
    assert peer.protected() == ["main"]
    assert [peer.has_uncommitted(each) for each in ("main", "dev")] == [True, False]
    assert DumpIds.parse(await peer.dump(later)) == DumpIds("c", "b", "t")
    assert {each.split(" ", 2)[2] for each in answers.seen} == {"Basic a2V5OnNlY3JldA=="}


async def test_a_dump_that_fails_is_told(peer: PeerServer, answers: type[Answers]) -> None:
    answers.table = {
        f"POST {ROOT}/dump": (202, {"id": "DR1"}),
        f"GET {ROOT}/dump?task_id=DR1": (200, {"done": True, "error": "no space"}),
    }
    with pytest.raises(TarnError, match="no space"):
        await peer.dump(no_time)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, {"message": "no"}, Kind.DENIED),
        (404, {"message": "no"}, Kind.FAILED_PRECONDITION),
        (302, {}, Kind.FAILED_PRECONDITION),
        (200, [], Kind.FAILED_PRECONDITION),
        (200, {}, Kind.FAILED_PRECONDITION),
        (200, b"<html>", Kind.UNAVAILABLE),
        (200, b"1" * (2 << 20), Kind.UNAVAILABLE),
        (200, b"[" * 100_000, Kind.UNAVAILABLE),
    ],
)
def test_other_answers_are_errors_and_the_key_goes_nowhere_else(
    peer: PeerServer, answers: type[Answers], status: int, body: Any, kind: Kind
) -> None:
    answers.table = {f"GET {ROOT}": (status, body)}
    with pytest.raises(TarnError) as caught:
        peer.place()
    assert caught.value.kind is kind
    assert "secret" not in caught.value.message
    assert len(answers.seen) == 1


def test_other_schemes_are_refused() -> None:
    with pytest.raises(TarnError, match="no address of a server"):
        PeerServer("file:///etc/passwd", "k", "s", "shop")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"commits_meta_range_id": 1}', "[" * 100_000])
def test_another_document_is_no_dump(text: str) -> None:
    with pytest.raises(TarnError, match="lakectl refs-dump"):
        DumpIds.parse(text)

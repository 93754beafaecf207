"""`tarn repo import-lakefs`, seen through lakeFS's own interface at both ends: a recorded lakeFS, or a running one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forked_cli
import pytest
from lakefs.client import Client
from lakefs_lab import recorded
from peer_history import make_history, seen
from rest_clients import sdk_of
from rest_server import RestServer
from running_lakefs import running_lakefs
from running_tarn import RunningTarn, clean_environment
from tests.support.servers import s3_server


@dataclass(frozen=True)
class Peer:
    """How a repository is named to the command, and what users saw of it in lakeFS."""

    arguments: tuple[str, ...]
    seen: dict[str, Any] = field(repr=False)
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    uncommitted: tuple[str, ...] = ("unknown",)


def of_running(server: RestServer) -> Peer:
    """Makes the history in a running lakeFS."""
    client = Client(
        host=server.url, username=server.access_key_id, password=server.secret_access_key
    )
    make_history(client, "shop", "s3://lakefs/shop")
    environment = {
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": server.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": server.secret_access_key,
        "AWS_ACCESS_KEY_ID": s3_server.ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": s3_server.SECRET_ACCESS_KEY,
        "AWS_DEFAULT_REGION": s3_server.REGION,
    }
    arguments = ("--server", server.url, "--from", "shop", "--endpoint", server.bucket_endpoint)
    return Peer(arguments, seen(sdk_of(server), "shop"), environment, ("main",))


@pytest.fixture
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Peer]:
    if request.config.getoption("--peer"):
        with running_lakefs(tmp_path) as server:
            yield of_running(server)
        return
    record = recorded(tmp_path)
    refs = str(tmp_path / "refs.json")
    yield Peer((str(record.folder), "--refs", refs), record.seen)


def test_a_repository_comes_over_with_its_history(
    tarn: RunningTarn, peer: Peer, tmp_path: Path
) -> None:
    name = f"shop-{tmp_path.name[-20:].lower().replace('_', '-')}"
    where = ("--work", str(tmp_path / "work"), "--data-dir", str(tarn.data))

    def run(*more: str) -> Any:
        command = ("--json", "repo", "import-lakefs", name, *peer.arguments, *where, *more)
        done = forked_cli.run(
            ["--settings", str(tarn.settings), *command],
            clean_environment(**peer.environment),
            timeout_s=60,
        )
        assert done.code == 0, done.err
        return done

    counted = run("--dry-run").json
    assert tarn.cli("repo", "show", name).code == 3
    done = run()
    assert (done.json["branches"], done.json["tags"], done.json["commits"]) == (3, 2, 8)
    assert done.json["objects_copied"] == counted["objects"]
    assert done.json["bytes_copied"] == counted["bytes"] > 1_000_000
    server = RestServer("tarn", tarn.state()["api"], tarn.access_key_id, tarn.secret_access_key)
    assert seen(sdk_of(server), name) == peer.seen
    assert run().json["objects_copied"] == 0
    tarn.ok("fsck", "--data-dir", str(tarn.data), "--repository", name, "--verify-data")
    assert done.json["uncommitted_left_behind"] == list(peer.uncommitted)

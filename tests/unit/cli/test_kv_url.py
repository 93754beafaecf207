"""The URL of `tarn up --kv`, and the settings that follow from it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tarn.config import load
from tarn.core.errors import Kind, Reason, TarnError
from tarn_cli.commands import up
from tarn_cli.exits import CliError, Exit
from tarn_cli.node.kv_url import kv_variables
from tarn_cli.node.plan import NodeFlags, NodePlan, read_config


@pytest.mark.parametrize(
    ("url", "points", "keyspace"),
    [
        ("cassandra://127.0.0.1", ("127.0.0.1:9042",), "tarn"),
        ("cassandra://127.0.0.1:9043/lake_2", ("127.0.0.1:9043",), "lake_2"),
        ("cassandra://a.db,b.db:1,c.db/", ("a.db:9042", "b.db:1", "c.db:9042"), "tarn"),
        ("cassandra://[::1]", ("[::1]:9042",), "tarn"),
        ("cassandra://[::1]:9043,[::2]/x", ("[::1]:9043", "[::2]:9042"), "x"),
    ],
)
def test_a_url_names_the_nodes_and_the_keyspace(
    url: str, points: tuple[str, ...], keyspace: str
) -> None:
    db = load(None, kv_variables(url, None)).metadata.db
    assert (db.type, db.cassandra.contact_points, db.cassandra.keyspace) == (
        "cassandra",
        points,
        keyspace,
    )
    assert db.cassandra.replication_factor == 0
    assert load(None, kv_variables(url, 2)).metadata.db.cassandra.replication_factor == 2


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:9042",
        "postgres://a",
        "cassandra://",
        "cassandra:///tarn",
        "cassandra://a:b",
        "cassandra://a,,b",
        "cassandra://:9042",
        "cassandra://::1",
        "cassandra://[::1",
        "cassandra://a/b/c",
        "cassandra://a?x=1",
        "cassandra://a#x",
    ],
)
def test_the_error_for_a_wrong_url_shows_the_expected_form(url: str) -> None:
    with pytest.raises(CliError, match=r"cassandra://host\[:port\]") as caught:
        kv_variables(url, None)
    assert caught.value.exit_code is Exit.USAGE


def test_a_password_in_the_url_is_refused_and_not_shown() -> None:
    with pytest.raises(CliError) as caught:
        kv_variables("cassandra://tarn:hunter2@a/x", None)
    assert "hunter2" not in caught.value.message + caught.value.hint
    assert "PASSWORD_FILE" in caught.value.hint


def test_replicas_without_a_url_are_refused() -> None:
    assert kv_variables("", None) == {}
    with pytest.raises(CliError, match="--kv"):
        kv_variables("", 3)


def test_a_detached_node_gets_the_same_url() -> None:
    flags = NodeFlags(kv="cassandra://a/b", kv_replicas=2)
    assert flags.arguments() == ["--kv", "cassandra://a/b", "--kv-replicas", "2"]


def names_of(tmp_path: Path, flags: NodeFlags) -> dict[str, str]:
    """Returns the parts of a plan and their rpc addresses."""
    config = read_config(None, {}, tmp_path)
    with NodePlan.of(flags, config, {}) as plan:
        for part in plan.specs:
            if part.name == "compactor":
                continue
            told = part.environment["TARN_SERVICES_GRAVELER_ADDRESSES"].split(",")
            assert told[0] == plan.server
        return {part.name: part.environment["TARN_RPC_LISTEN_ADDRESS"] for part in plan.specs}


def test_separate_services_have_one_graveler_or_several(tmp_path: Path) -> None:
    free = {"port": 0, "rpc_port": 0, "separate": True}
    one = names_of(tmp_path, NodeFlags(**free))  # type: ignore[arg-type]  # they are
    assert list(one) == ["auth", "graveler", "gateway", "api", "compactor"]
    three = names_of(tmp_path, NodeFlags(**free, workers=3))  # type: ignore[arg-type]  # they are
    assert list(three) == [
        "auth",
        "graveler",
        "graveler-2",
        "graveler-3",
        "gateway",
        "api",
        "compactor",
    ]
    assert len({three[name] for name in three if name.startswith("graveler")}) == 3


def test_the_rest_endpoint_takes_a_free_port_instead_of_one_that_is_taken(tmp_path: Path) -> None:
    def planned(known: int, **flags: int) -> str:
        environment = {"TARN_API_LISTEN_ADDRESS": f"127.0.0.1:{known}"}
        config = read_config(None, environment, tmp_path)
        free = NodeFlags(rpc_port=0, **{"port": free_port(), **flags})  # type: ignore[arg-type]
        with NodePlan.of(free, config, environment) as plan:
            for part in plan.specs:
                assert part.environment["TARN_API_LISTEN_ADDRESS"] == plan.api.removeprefix(
                    "http://"
                )
            assert plan.state({}, 0).api == plan.api
            return plan.api.rpartition(":")[2]

    def free_port() -> int:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
            return port

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert planned(port) not in (str(port), "0")
        with pytest.raises(CliError, match="cannot listen"):
            planned(0, api_port=port)
    assert planned(port) == str(port)
    # A node on a free port leaves the known one to others.
    assert planned(port, port=0) != str(port)


async def _not_there(*_arguments: object) -> None:
    raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no node at a:9042")


def test_a_cluster_that_does_not_answer_is_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(up, "open_kv", _not_there)
    with pytest.raises(CliError, match="no node at a:9042") as caught:
        up.check_kv(load(None, kv_variables("cassandra://a", None)))
    assert caught.value.exit_code is Exit.UNAVAILABLE
    up.check_kv(load(None, {}))  # the embedded store needs no check

"""How a node holds its ports and passes them to its workers."""

from __future__ import annotations

import os
import random
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tarn_cli.exits import CliError, Exit
from tarn_cli.node.plan import NodeFlags, NodePlan, read_config
from tarn_cli.node.ports import hold_port


def listen(address: str, *, reuse_port: bool) -> socket.socket:
    host, _, port = address.rpartition(":")
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((host, int(port)))
    listener.listen()
    return listener


@pytest.mark.parametrize("reuse_port", [True, False])
def test_a_held_port_is_free_for_workers_and_takes_no_connection(reuse_port: bool) -> None:
    held = hold_port("127.0.0.1:0")
    for _ in range(3):
        with listen(held.address, reuse_port=reuse_port) as worker:
            host, _, port = held.address.rpartition(":")
            with socket.create_connection((host, int(port)), 5):
                worker.settimeout(5)
                worker.accept()[0].close()
    held.close()


def test_a_port_with_a_listener_is_refused_even_if_it_is_shared() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(CliError) as caught:
            hold_port(f"127.0.0.1:{other.getsockname()[1]}")
        assert caught.value.exit_code is Exit.CONFLICT


def plan(tmp_path: Path, flags: NodeFlags, **environment: str) -> NodePlan:
    environment = {"HOME": str(tmp_path), **environment}
    config = read_config(flags.config_file, environment, tmp_path / "data")
    return NodePlan.of(flags, config, environment)


FREE = {"port": 0, "rpc_port": 0}


def test_workers_of_a_single_node_share_their_ports(tmp_path: Path) -> None:
    with plan(tmp_path, NodeFlags(**FREE, workers=3)) as found:  # type: ignore[arg-type]  # ints
        part = found.specs[0]
        assert part.names() == ["worker-0", "worker-1", "worker-2"]
        told = part.environment
        assert f"http://{told['TARN_GATEWAYS_S3_LISTEN_ADDRESS']}" == found.endpoint
        assert told["TARN_RPC_LISTEN_ADDRESS"] == found.server == found.auth_server
        assert not found.server.endswith(":0")
        assert Path(told["TARN_INSTALLATION_SECRET_FILE"]).read_text().strip()


@pytest.mark.parametrize("separate", [False, True])
def test_the_compactor_reaches_each_replica(tmp_path: Path, separate: bool) -> None:
    flags = NodeFlags(port=0, rpc_port=0, workers=3, separate=separate)
    with plan(tmp_path, flags) as found:
        compactor = found.specs[-1]
        assert compactor.names() == ["compactor"]
        told = compactor.environment
        watched = told["TARN_SERVICES_GRAVELER_ADDRESSES"].split(",")
        assert len(set(watched)) == 3
        if separate:
            replicas = [each for each in found.specs if each.name.startswith("graveler")]
            assert watched == [each.environment["TARN_RPC_LISTEN_ADDRESS"] for each in replicas]
        else:
            assert watched == [each["TARN_RPC_REPLICA_ADDRESS"] for each in found.specs[0].own]
        assert told["TARN_RPC_LISTEN_ADDRESS"] == found.compactor_server
        assert found.state({}, 0).compactor_server == found.compactor_server


def test_no_compactor_runs_if_it_is_not_enabled(tmp_path: Path) -> None:
    flags = NodeFlags(port=0, rpc_port=0, workers=2)
    with plan(tmp_path, flags, TARN_COMPACTOR_ENABLED="false") as found:
        assert [each.name for each in found.specs] == ["worker"]
        assert [list(own) for own in found.specs[0].own] == [["TARN_TELEMETRY_ADMIN_ADDRESS"]] * 2
        assert found.compactor_server == ""


@pytest.mark.parametrize("separate", [False, True])
def test_every_process_has_an_admin_port_of_its_own(tmp_path: Path, separate: bool) -> None:
    flags = NodeFlags(port=0, rpc_port=0, workers=2, separate=separate)
    with plan(tmp_path, flags) as found:
        names = [name for spec in found.specs for name in spec.names()]
        assert list(found.admin_addresses) == names
        assert len(set(found.admin_addresses.values())) == len(names) >= 3
        told = [own["TARN_TELEMETRY_ADMIN_ADDRESS"] for spec in found.specs for own in spec.own]
        assert told == list(found.admin_addresses.values())
        assert found.state({}, 0).admin_addresses == found.admin_addresses
        assert not any(address.endswith(":0") for address in told)


def three_free_ports() -> int:
    """Returns the first of three free ports in a row. They are below those that systems give to whoever asks for any,
    which other tests take at the same time."""
    for port in random.sample(range(20_000, 30_000, 3), 1_000):
        with ExitStack() as held:
            try:
                for each in range(port, port + 3):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", each))
            except OSError:
                continue
            return port
    raise AssertionError("no three free ports in a row")


def test_admin_ports_follow_the_configured_one_and_pass_over_a_taken_one(tmp_path: Path) -> None:
    port = three_free_ports()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port + 1))
        other.listen()
        flags = NodeFlags(port=0, rpc_port=0, workers=2)
        with plan(tmp_path, flags, TARN_TELEMETRY_ADMIN_ADDRESS=f"127.0.0.1:{port}") as found:
            addresses = [int(each.rpartition(":")[2]) for each in found.admin_addresses.values()]
    assert addresses[0] == port
    assert addresses[1] not in (port, port + 1, port + 2)
    assert addresses[2] == port + 2


def test_a_taken_port_of_the_compactor_does_not_prevent_the_start(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        environment = {
            "TARN_SERVICES_COMPACTOR_ADDRESSES": taken,
            "TARN_SERVICES_GRAVELER_ADDRESSES": "127.0.0.1:0",
        }
        with plan(tmp_path, NodeFlags(port=0, workers=1), **environment) as found:
            assert found.compactor_server not in {"", taken}


def test_separate_services_have_separate_addresses(tmp_path: Path) -> None:
    with plan(tmp_path, NodeFlags(**FREE, separate=True)) as found:  # type: ignore[arg-type]  # ints
        assert [part.name for part in found.specs] == [
            "auth",
            "graveler",
            "gateway",
            "api",
            "compactor",
        ]
        listens = [part.environment["TARN_RPC_LISTEN_ADDRESS"] for part in found.specs[:2]]
        assert listens == [found.auth_server, found.server]
        assert len({found.endpoint.removeprefix("http://"), *listens}) == 3


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tarn.yaml"
    file.write_text("workers: 2\ngateways: {s3: {listen_address: '127.0.0.2:0'}}\n")
    flags = NodeFlags(config_file=file, rpc_port=0)
    with plan(tmp_path, flags) as found:
        assert found.endpoint.startswith("http://127.0.0.2:")
        assert found.specs[0].count == 2
        assert found.specs[0].command[-2:] == ("--config", str(file))
    with plan(tmp_path, flags, TARN_GATEWAYS_S3_LISTEN_ADDRESS="127.0.0.3:0") as found:
        assert found.endpoint.startswith("http://127.0.0.3:")
    flags = NodeFlags(config_file=file, host="127.0.0.4", rpc_port=0, workers=1)
    with plan(tmp_path, flags) as found:
        assert found.endpoint.startswith("http://127.0.0.4:")
        assert found.specs[0].names() == ["worker"]


def test_by_default_there_is_a_worker_for_each_core(tmp_path: Path) -> None:
    with plan(tmp_path, NodeFlags(**FREE)) as found:  # type: ignore[arg-type]  # ints
        assert found.specs[0].count == len(os.sched_getaffinity(0))


def test_flags_become_arguments_of_a_second_tarn_up(tmp_path: Path) -> None:
    flags = NodeFlags(tmp_path / "c.yaml", tmp_path, "127.0.0.9", 0, 1, 2, separate=True)
    assert flags.arguments() == [
        *("--config", str(tmp_path / "c.yaml"), "--data-dir", str(tmp_path)),
        *("--host", "127.0.0.9", "--port", "0", "--rpc-port", "1", "--workers", "2", "--separate"),
    ]
    assert NodeFlags().arguments() == []


def test_a_health_address_is_refused(tmp_path: Path) -> None:
    """All processes of the node would take the same one."""
    with pytest.raises(CliError, match=r"rpc\.health_address") as caught:
        plan(tmp_path, NodeFlags(**FREE), TARN_RPC_HEALTH_ADDRESS="127.0.0.1:0")  # type: ignore[arg-type]  # ints
    assert caught.value.exit_code is Exit.USAGE


def test_a_worker_is_not_killed_while_it_may_drain(tmp_path: Path) -> None:
    with plan(tmp_path, NodeFlags(**FREE), TARN_RPC_DRAIN_TIMEOUT="10m") as found:  # type: ignore[arg-type]  # ints
        assert found.stop_s > 600
    with plan(tmp_path, NodeFlags(**FREE)) as found:  # type: ignore[arg-type]  # ints
        assert found.stop_s == 30

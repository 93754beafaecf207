"""`tarn up` in the background, ports, and the end of the workers when the supervisor dies."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from running_tarn import BIN, clean_environment


class Node:
    """`tarn` on one data folder, without a supervisor tied to the tests."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.environment: dict[str, str] = {}
        self.remarks = ""
        """What the last command wrote to stderr."""

    def __call__(self, *arguments: str, code: int = 0) -> Any:
        done = subprocess.run(
            [str(BIN / "tarn"), "--json", *arguments, "--data-dir", str(self.data)],
            capture_output=True,
            text=True,
            timeout=120,
            env=clean_environment(**self.environment),
            check=False,
        )
        assert done.returncode == code, done.stderr
        self.remarks = done.stderr
        return json.loads(done.stdout) if done.stdout else done.stderr


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node("down")


def eventually(look: Callable[[], bool], seconds: float = 30) -> None:
    """Waits until the condition holds."""
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, "the condition did not hold in time"
        time.sleep(0.05)


FREE = ("--port", "0", "--rpc-port", "0", "--workers", "1")


def test_a_detached_node_serves_and_is_stopped(node: Node) -> None:
    node("status", code=6)
    node.data.mkdir(mode=0o700)
    (node.data / "blocks" / "lake-1").mkdir(parents=True, mode=0o700)
    up = node("up", "--detach", *FREE)
    assert "such as lake-1. If the metadata were lost" in node.remarks
    assert node("status") == up
    workers = [psutil.Process(pid) for pid in up["workers"].values()]
    port = int(up["endpoint"].rpartition(":")[2])
    socket.create_connection(("127.0.0.1", port), 5).close()
    node("down")
    node("status", code=6)
    assert not any(worker.is_running() for worker in workers)
    assert not (node.data / "tarn.json").exists()
    node("down")  # a stop without a running node is not a failure


def test_objects_survive_a_restart_on_the_same_port(node: Node) -> None:
    first = node("up", "--detach", *FREE)
    key = node("auth", "setup")
    flags = ("--access-key-id", key["access_key_id"], "--secret-access-key")
    port = first["endpoint"].rpartition(":")[2]
    rpc = first["server"].rpartition(":")[2]

    def tarn(*arguments: str) -> str:
        return subprocess.run(
            [
                str(BIN / "tarn"),
                *("--server", first["server"], "--endpoint", first["endpoint"]),
                *flags,
                key["secret_access_key"],
                *arguments,
            ],
            input="hello",
            capture_output=True,
            text=True,
            timeout=60,
            env=clean_environment(),
            check=True,
        ).stdout

    tarn("repo", "create", "lake")
    tarn("fs", "upload", "-", "lake/main/a")
    node("down")
    second = node("up", "--detach", "--port", port, "--rpc-port", rpc, "--workers", "1")
    assert second["endpoint"] == first["endpoint"]
    assert tarn("fs", "cat", "lake/main/a") == "hello"


def test_the_error_names_a_port_that_is_in_use(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        said = node("up", "--port", port, "--rpc-port", "0", code=5)
        assert f"127.0.0.1:{port}" in said
        detached = node("up", "--detach", "--port", port, "--rpc-port", "0", code=5)
        assert f"127.0.0.1:{port}" in detached


def test_the_error_names_a_wrong_configuration(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "tarn.yaml"
    file.write_text("gateways: {s3: {listen_adress: '127.0.0.1:0'}}\n")
    said = node("up", "--config", str(file), code=2)
    assert "listen_address" in said


def test_workers_die_with_their_supervisor(node: Node) -> None:
    up = node("up", "--detach", *FREE)
    workers = [psutil.Process(pid) for pid in up["workers"].values()]
    os.kill(up["pid"], signal.SIGKILL)
    eventually(lambda: not any(worker.is_running() for worker in workers))
    node("status", code=6)
    assert node("up", "--detach", *FREE)["pid"] != up["pid"]


@pytest.mark.parametrize(
    ("form", "services"), [((), {"node"}), (("--separate",), {"auth", "graveler"})]
)
def test_a_process_with_metadata_exports_counts_of_its_store(
    node: Node, form: tuple[str, ...], services: set[str]
) -> None:
    node.environment = {
        "OTEL_METRICS_EXPORTER": "console",
        "OTEL_METRIC_EXPORT_INTERVAL": "300",
    }
    log = Path(node("up", "--detach", *FREE, *form)["log"])

    def counting() -> set[str]:
        exports = log.read_text().split('"resource_metrics"')[1:]
        named = (re.search(r'"service.name": "([a-z]+)"', text) for text in exports)
        pairs = zip(named, exports, strict=True)
        return {name[1] for name, text in pairs if name and '"tarn.kv.duration"' in text}

    eventually(lambda: counting() == services)


@pytest.mark.parametrize("form", [(), ("--separate",)])
def test_every_process_serves_its_metrics_on_its_admin_port(
    node: Node, form: tuple[str, ...]
) -> None:
    up = node("up", "--detach", *FREE, *form)
    assert list(up["admin_ports"]) == list(up["workers"])
    services = set()
    for address in up["admin_ports"].values():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            page = answer.read().decode()
        services.add(re.search(r'tarn_build_info\{service="([a-z]+)"', page)[1])  # type: ignore[index]
        assert "tarn_process_resident_memory_bytes " in page
        assert "tarn_telemetry_skipped_samples" not in page
    apart = {"auth", "graveler", "gateway", "api"}
    assert services == (apart if form else {"node"}) | {"compactor"}

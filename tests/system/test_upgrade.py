"""The last release and this one on one embedded store: forwards, back, and no way back after the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from chaos.node import Node
from last_release import LastRelease, last_release

OPTIONS = ("--workers", "1")


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> LastRelease:
    return last_release(tmp_path_factory.mktemp("last"))


def test_the_code_of_the_last_release_is_its_own(last: LastRelease) -> None:
    """Otherwise the tests here would compare this release with itself."""
    for module in (
        "tarn.kv.records",
        "tarn_graveler.assembly",
        "tarn_cli.app",
        "tarn_proto.store.v1.graveler_pb2",
    ):
        assert last.place_of(module).is_relative_to(last.folder)


async def change(node: Node, environment: Mapping[str, str]) -> None:
    """Stops the running release and starts another one on the same data and ports."""
    node.stop()
    node.environment = environment
    await node.restart()


def put(node: Node, path: str, text: str) -> None:
    node.tarn.ok("fs", "upload", "-", path, stdin=text.encode())


def read(node: Node, path: str) -> str:
    return node.tarn.ok("fs", "cat", path).out


def level_of(node: Node) -> int:
    data = str(node.tarn.data)
    return int(node.tarn.ok("--json", "upgrade", "status", "--data-dir", data).json["level"])


@pytest.mark.timeout(420)
async def test_an_upgrade_goes_forward_and_back_and_ends(last: LastRelease, tmp_path: Path) -> None:
    node = Node(tmp_path, OPTIONS, last.environment)
    node.start()
    tarn = node.tarn
    try:
        tarn.ok("repo", "create", "lake")
        put(node, "lake/main/committed", "by the last release")
        tarn.ok("commit", "lake/main", "-m", "first")
        put(node, "lake/main/staged", "by the last release")

        await change(node, {})
        assert level_of(node) == 1
        assert read(node, "lake/main/staged") == "by the last release"
        put(node, "lake/main/new", "by this release")
        tarn.ok("commit", "lake/main", "-m", "second")
        tarn.ok("branch", "create", "lake/dev", "--from", "main")
        put(node, "lake/dev/third", "by this release")
        tarn.ok("compact", "lake/dev")

        await change(node, last.environment)
        assert read(node, "lake/main/new") == "by this release"
        assert read(node, "lake/dev/third") == "by this release"
        tarn.ok("commit", "lake/dev", "-m", "third")
        tarn.ok("merge", "lake/dev", "lake/main", "-m", "fourth")

        await change(node, {})
        assert read(node, "lake/main/staged") == "by the last release"
        assert len(tarn.ok("--json", "log", "lake/main").json) == 5  # with the first, empty one
        await the_end(node, last)
    finally:
        node.stop()


async def the_end(node: Node, last: LastRelease) -> None:
    """Raises the level: the last release is refused, this one goes on, and nothing is damaged."""
    tarn, data = node.tarn, str(node.tarn.data)
    running = tarn.cli("upgrade", "finish", "--data-dir", data)
    assert running.code != 0, "the level was raised while Tarn used the embedded store"
    node.stop()
    raised = tarn.ok("--json", "upgrade", "finish", "--data-dir", data).json
    assert (raised["level_before"], raised["level"]) == (1, 2)

    node.environment = last.environment
    with pytest.raises(AssertionError, match="too old for its feature level"):
        await node.restart()
    node.environment = {}
    await node.restart()
    assert level_of(node) == 2
    assert read(node, "lake/main/new") == "by this release"
    tarn.ok("fsck", "--data-dir", data)

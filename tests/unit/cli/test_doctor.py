"""`tarn doctor` finds what would keep an installation from running well."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.clock import ManualClock

from tarn.block.local.store import LocalBlockStore
from tarn.config import Config, load
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import StoreLevel
from tarn.kv.fence import read_store, write_fence
from tarn.kv.opening import open_store
from tarn.kv.port import Kv
from tarn.kv.replicas import Replica
from tarn.kv.upgrading import raise_level
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.telemetry.admin import AdminServer
from tarn.telemetry.meters import Meters
from tarn.telemetry.process import register_process
from tarn_cli.doctor import Finding, Level, examine, look_at_processes

CLOCK = SystemClock()


def config_in(folder: Path, **more: str) -> Config:
    variables = {"TARN_DATA_DIR": str(folder), "TARN_INSTALLATION_SECRET": "5" * 64, **more}
    return load(None, {**variables, "HOME": str(folder)})


async def found(config: Config) -> dict[str, Finding]:
    return {each.check: each async for each in examine(config, CLOCK, SystemIds(CLOCK))}


def files_below(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


async def test_a_fresh_installation_has_no_errors_and_no_block_is_left(tmp_path: Path) -> None:
    fresh = await found(config_in(tmp_path / "new"))
    assert "the first start makes it" in fresh["block store"].text
    assert files_below(tmp_path) == []
    (tmp_path / "blocks").mkdir()
    findings = await found(config_in(tmp_path))
    assert {name for name, each in findings.items() if each.level is Level.ERROR} == set()
    assert "written, read and removed" in findings["block store"].text
    assert "the first start makes it" in findings["metadata store"].text
    data = [name for name in files_below(tmp_path / "blocks") if len(name) >= 32]
    assert data == []


@pytest.mark.parametrize("step", ["put", "read", "delete_many"])
async def test_a_missing_permission_of_the_block_store_is_named(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, "the bucket says 403")

    monkeypatch.setattr(LocalBlockStore, step, refuse)
    (tmp_path / "blocks").mkdir()
    finding = (await found(config_in(tmp_path)))["block store"]
    verb = {"put": "write", "read": "read", "delete_many": "remove"}[step]
    assert finding.level is Level.ERROR
    assert f"cannot {verb} a block" in finding.text
    assert "the bucket says 403" in finding.text
    if step == "read":
        assert [name for name in files_below(tmp_path / "blocks") if len(name) >= 32] == []


async def test_a_block_store_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = config_in(tmp_path, TARN_BLOCKSTORE_LOCAL_PATH=str(tmp_path / "file" / "blocks"))
    assert (await found(config))["block store"].level is Level.ERROR


async def test_a_damaged_metadata_store_is_an_error(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    config.metadata.db.embedded.path.mkdir(parents=True)
    config.metadata.db.embedded.file.write_bytes(b"this is no database" * 1000)
    assert (await found(config))["metadata store"].level is Level.ERROR


async def test_a_secret_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    config = load(None, {"TARN_DATA_DIR": str(tmp_path), "HOME": str(tmp_path)})
    assert (await found(config))["secret"].level is Level.WARNING  # there is none yet
    secret = tmp_path / "secret"
    secret.write_text("5" * 64)
    secret.chmod(0o644)
    finding = (await found(config))["secret"]
    assert finding.level is Level.WARNING
    assert "5" * 8 not in finding.text
    secret.chmod(0o600)
    assert (await found(config))["secret"].level is Level.OK


class AheadClock(ManualClock):
    """A clock that differs from `CLOCK`."""

    def __init__(self, ahead_s: float) -> None:
        super().__init__()
        self._ahead_us = int(ahead_s * 1_000_000)

    def now_us(self) -> int:
        return CLOCK.now_us() + self._ahead_us


@asynccontextmanager
async def process(ahead_s: float, version: str, service: str = "graveler") -> AsyncIterator[str]:
    """Yields the admin port of a process whose clock differs."""
    clock = AheadClock(ahead_s)
    meters = Meters()
    register_process(meters, clock, service, version)
    async with AdminServer(meters) as server:
        yield await server.listen("127.0.0.1:0")


async def looked_at(addresses: dict[str, str], connections: int = 1) -> dict[str, Finding]:
    def look() -> list[Finding]:
        return list(look_at_processes(addresses, CLOCK, "1.0", connections))

    return {each.check: each for each in await asyncio.to_thread(look)}


@pytest.mark.parametrize(
    ("ahead_s", "level"),
    [(0.0, Level.OK), (2.0, Level.WARNING), (-2.0, Level.WARNING), (60.0, Level.ERROR)],
)
async def test_a_clock_that_differs_is_found(ahead_s: float, level: Level) -> None:
    async with process(ahead_s, "1.0") as address:
        findings = await looked_at({"worker": address})
    assert findings["process worker"].level is level
    assert findings["versions"].level is Level.OK


@pytest.mark.parametrize("service", ["gateway", "node", "graveler"])
async def test_a_gateway_that_may_open_too_few_files_is_found(service: str) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    async with process(0, "1.0", service) as address:
        enough = await looked_at({"worker": address}, limit - 512)
        too_few = await looked_at({"worker": address}, limit - 511)
    assert "open files worker" not in enough
    assert ("open files worker" in too_few) is (service != "graveler")
    if service != "graveler":
        assert too_few["open files worker"].level is Level.WARNING
        assert f"may open {limit} files" in too_few["open files worker"].text


async def test_the_limit_that_a_process_will_have_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of the shell, whose soft limit is raised at the start."""
    config = config_in(tmp_path)
    for limits, level in (((1024, 40_000), Level.OK), ((1024, 4096), Level.WARNING)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=limits: limits)
        assert (await found(config))["open files"].level is level


async def test_processes_of_another_version_are_named(tmp_path: Path) -> None:
    async with process(0, "1.0") as one, process(0, "0.9") as other:
        findings = await looked_at({"a": one, "b": other})
    assert findings["versions"].level is Level.WARNING
    assert "1.0: a; 0.9: b" in findings["versions"].text


async def test_a_process_that_does_not_answer_is_an_error() -> None:
    async with process(0, "1.0") as address:
        pass
    findings = await looked_at({"gone": address})
    assert findings["process gone"].level is Level.ERROR
    assert "versions" not in findings


async def test_the_releases_that_use_the_store_and_its_level_are_told(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    store = await open_store(config, CLOCK, SystemIds(CLOCK))
    try:
        assert (await found(config))["feature level"].level is Level.WARNING
        await raise_level(store, config.installation.id, CLOCK, is_shared=False, said=print)
        finding = (await found(config))["feature level"]
        assert finding == Finding("feature level", Level.OK, "2 of 2; open in no process")
        async with replica(store, config, "1.1"):
            finding = (await found(config))["feature level"]
            assert finding.level is Level.OK
            assert "open in graveler 1.1 on" in finding.text
            assert "levels 1 to 2" in finding.text
            async with replica(store, config, "1.0"):
                finding = (await found(config))["feature level"]
        assert finding.level is Level.WARNING
        assert "Several releases run" in finding.text
        level = StoreLevel(1, 2)
        _, _, predicate = await read_store(store, config.installation.id)
        await write_fence(store, config.installation.id, None, predicate, level=level)
        assert "was interrupted" in (await found(config))["feature level"].text
    finally:
        await store.close()


def replica(store: Kv, config: Config, version: str) -> Replica:
    return Replica(
        store,
        config.installation.id,
        service="graveler",
        version=version,
        clock=CLOCK,
        ids=SystemIds(CLOCK),
        stop=print,
    )


@pytest.mark.parametrize("with_tls", [True, False])
async def test_a_process_with_mutual_tls_needs_no_secret(tmp_path: Path, with_tls: bool) -> None:
    """In a cluster only auth has it."""
    files = {f"TARN_RPC_TLS_{name}": f"/etc/tarn/tls/{name}" for name in ("CA", "CERT", "KEY")}
    variables = {"TARN_DATA_DIR": str(tmp_path), "HOME": str(tmp_path)}
    finding = (await found(load(None, {**variables, **(files if with_tls else {})})))["secret"]
    assert finding.level is (Level.OK if with_tls else Level.WARNING)

"""New secrets are used once the files stand still; what cannot be used leaves the old ones in use."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.support.clock import ManualClock

from tarn.config import Config, SecretChanges, SecretFiles, load
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.process.secret_watch import SecretWatch
from tarn.telemetry.meters import Meters

OLD, NEW = "aa" * 32, "bb" * 32


class Process:
    """A process with one user of its secret, that may refuse."""

    def __init__(self, folder: Path, *, after_load: str = OLD) -> None:
        self.file = folder / "secret"
        self.file.write_text(OLD)
        environment = {"HOME": "/", "TARN_INSTALLATION_SECRET_FILE": str(self.file)}
        config = load(None, environment)
        self.file.write_text(after_load)
        self.clock, self.meters, changes = ManualClock(), Meters(), SecretChanges()
        self.refusal = ""
        self.told: list[str] = []
        self.others_told = 0
        changes.subscribe(self.use)
        changes.subscribe(self.use_too)
        files = SecretFiles(config, environment)
        self.watch = SecretWatch(config, files, changes, self.clock, self.meters)

    async def use(self, config: Config) -> None:
        assert config.installation.secret is not None
        if self.refusal:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, self.refusal)
        self.told.append(config.installation.secret.reveal())

    async def use_too(self, config: Config) -> None:
        self.others_told += 1

    async def looks(self, count: int = 2) -> list[str]:
        """Returns the lines that so many looks logged."""
        with capture_logs() as lines:
            for _ in range(count):
                await self.watch.look()
        return [line["event"] for line in lines]

    def metric(self, name: str) -> dict[str, float]:
        found = self.meters.samples(name)
        return {labels.get("outcome", ""): value for labels, value in found if value}


@pytest.fixture
async def process(tmp_path: Path) -> Process:
    made = Process(tmp_path)
    assert await made.looks() == []
    made.told.clear()
    return made


async def test_a_new_secret_is_used_once(process: Process) -> None:
    process.file.write_text(NEW)
    assert await process.looks(5) == ["secrets reloaded"]
    assert process.told == [NEW]
    assert process.metric("secrets.reloads") == {"used": 1}
    assert process.metric("secrets.refused") == {}


async def test_files_that_are_being_replaced_are_left_alone(process: Process) -> None:
    for text in (OLD, NEW, NEW[2:], "", OLD):
        process.file.write_text(text)
        assert await process.looks(1) == []
    assert process.told == []


async def test_a_damaged_file_leaves_the_old_secret_in_use_and_is_told_once(
    process: Process,
) -> None:
    process.file.write_text("damaged")
    assert await process.looks(9) == ["the new secrets are not used"]
    process.clock.advance(31)
    assert await process.looks(2) == []
    assert process.told == []
    assert process.metric("secrets.reloads") == {"refused": 1}
    assert process.metric("secrets.refused") == {"": 1}
    process.file.write_text(OLD)
    assert await process.looks() == ["secrets reloaded"]
    assert process.metric("secrets.refused") == {}


async def test_a_refusal_is_tried_again_and_the_others_are_told(process: Process) -> None:
    before, process.refusal = process.others_told, "the store does not answer"
    process.file.write_text(NEW)
    assert await process.looks(9) == ["the new secrets are not used"]
    assert process.others_told == before + 1
    process.refusal = ""
    assert await process.looks(9) == []
    process.clock.advance(31)
    assert await process.looks(1) == ["secrets reloaded"]
    assert process.told == [NEW]


async def test_a_change_during_the_start_is_seen(tmp_path: Path) -> None:
    process = Process(tmp_path, after_load=NEW)
    assert await process.looks() == ["secrets reloaded"]
    assert process.told == [NEW]


async def test_no_line_shows_a_secret(process: Process) -> None:
    with capture_logs() as lines:
        for text in (NEW, "x" + NEW):
            process.file.write_text(text)
            await process.watch.look()
            await process.watch.look()
    assert len(lines) == 2
    assert NEW[:8] not in repr(lines)
